// The exports for Node; browsers use browser.js.

export * from "./errors.js";
export { Receiver, SeenInMemory } from "./receiver.js";
export { Sender } from "./sender.js";
