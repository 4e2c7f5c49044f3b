// Types of the one entry of msgpackr that this package uses. The package declares none for it. Only what is used stands
// here.

declare module 'msgpackr/index-no-eval' {
  export interface PackrOptions {
    useRecords?: boolean;
    variableMapSize?: boolean;
    copyBuffers?: boolean;
    int64AsType?: 'auto';
    encodeUndefinedAsNil?: boolean;
    structuredClone?: boolean;
    writeFunction?: (value: unknown) => unknown;
  }

  /** What `encode` returns in its reuse mode: its own memory, with the value between `start` and `end`. */
  export type ReusedTarget = Uint8Array & { start: number; end: number };

  export class Packr {
    constructor(options?: PackrOptions);
    encode(value: unknown, mode: number): ReusedTarget;
    unpack(source: Uint8Array, range: { start: number; end: number }): unknown;
  }

  export const REUSE_BUFFER_MODE: number;
  export const RESET_BUFFER_MODE: number;
}
