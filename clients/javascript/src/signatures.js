// Checks that a delivery is from Hifi and recent, as Standard Webhooks specifies.

import { createHmac, timingSafeEqual } from "node:crypto";

import { DeliveryError, SetupError } from "./errors.js";

const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;

/** Knows the destination's secrets: one, or the new and the old one during a rotation. */
export class Verifier {
  #keys;
  #toleranceS;

  constructor(secrets, toleranceS) {
    this.#keys = secrets.map((text) => {
      const encoded = String(text).replace(/^whsec_/, "");
      if (!BASE64.test(encoded)) {
        throw new SetupError("A signing secret is whsec_ and Base64. `hifi secrets new-signing-secret` makes one.");
      }
      return Buffer.from(encoded, "base64");
    });
    if (this.#keys.length === 0) throw new SetupError("Give the destination's signing secret (whsec_...).");
    this.#toleranceS = toleranceS;
  }

  /** Throw DeliveryError unless a recent signature was made with one of the secrets. */
  verify(headers, body, nowS) {
    const [id, at, signed] = ["id", "timestamp", "signature"].map((name) => headers[`webhook-${name}`] ?? "");
    if (id === "" || signed === "") {
      throw new DeliveryError(401, "The request is not signed: give the destination a secret.");
    }
    if (!/^\d{1,15}$/.test(at)) throw new DeliveryError(401, `webhook-timestamp '${at.slice(0, 40)}' is not a time.`);
    if (Math.abs(nowS - Number(at)) > this.#toleranceS) {
      const ago = `${Math.round(nowS - Number(at))} s ago, but only ${this.#toleranceS} s are allowed`;
      throw new DeliveryError(401, `The request was signed ${ago}: is this machine's clock right?`);
    }
    const begin = `${id}.${Number(at)}.`;
    const mine = this.#keys.map((key) => createHmac("sha256", key).update(begin).update(body).digest());
    for (const each of signed.split(" ")) {
      const [version, text = ""] = each.split(",", 2);
      const given = Buffer.from(version === "v1" ? text : "", "base64");
      if (mine.some((one) => one.length === given.length && timingSafeEqual(one, given))) return;
    }
    throw new DeliveryError(401, "No signature was made with a secret that this receiver knows.");
  }
}
