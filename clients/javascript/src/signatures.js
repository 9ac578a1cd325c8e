// Checks that a delivery is Hifi's and fresh, as the Standard Webhooks have it.

import { createHmac, timingSafeEqual } from "node:crypto";

import { DeliveryError, SetupError } from "./errors.js";

const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;

/** Knows the destination's secrets: one, or the new and the old one while they change. */
export class Verifier {
  #keys;
  #toleranceS;

  constructor(secrets, toleranceS) {
    this.#keys = secrets.map((text) => {
      const encoded = String(text).replace(/^whsec_/, "");
      if (!BASE64.test(encoded)) {
        throw new SetupError("A signing secret is whsec_ and Base64: `hifi secrets new-signing-secret` prints one.");
      }
      return Buffer.from(encoded, "base64");
    });
    if (this.#keys.length === 0) throw new SetupError("Give the destination's signing secret (whsec_...).");
    this.#toleranceS = toleranceS;
  }

  /** DeliveryError unless one of the signatures was made with one of the secrets, just now. */
  verify(headers, body, nowS) {
    const [id, at, signed] = ["id", "timestamp", "signature"].map((name) => headers[`webhook-${name}`] ?? "");
    if (id === "" || signed === "") {
      throw new DeliveryError(401, "The request is not signed: give the destination a secret.");
    }
    if (!/^\d{1,15}$/.test(at)) throw new DeliveryError(401, `webhook-timestamp is '${at.slice(0, 40)}' and no time.`);
    if (Math.abs(nowS - Number(at)) > this.#toleranceS) {
      const ago = `${Math.round(nowS - Number(at))} s ago, and ${this.#toleranceS} s are allowed`;
      throw new DeliveryError(401, `The request was signed ${ago}: is this machine's clock right?`);
    }
    const begin = `${id}.${Number(at)}.`;
    const mine = this.#keys.map((key) => createHmac("sha256", key).update(begin).update(body).digest());
    for (const each of signed.split(" ")) {
      const [version, text = ""] = each.split(",", 2);
      const given = Buffer.from(version === "v1" ? text : "", "base64");
      if (mine.some((one) => one.length === given.length && timingSafeEqual(one, given))) return;
    }
    throw new DeliveryError(401, "The signature is not made with a secret that is known here.");
  }
}
