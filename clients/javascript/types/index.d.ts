// The types of the client for Node.

export * from "./errors.js";
export * from "./receiver.js";
export * from "./sender.js";
