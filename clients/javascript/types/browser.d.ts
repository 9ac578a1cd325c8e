// The types of the client for pages.

export * from "./errors.js";
export * from "./sender.js";
