// How far the run is: one line that updates itself on a terminal, a line per quarter elsewhere. Owns nothing else of the output.

/** The part of a stream that is needed here; `process.stderr` is one. */
export interface ProgressOutput {
  readonly isTTY?: boolean | undefined;
  write(text: string): unknown;
}

const QUARTERS = 4;
const CLEAR_LINE = '\r\x1b[K';

export class Progress {
  readonly #output: ProgressOutput;
  readonly #total: number;
  #shownQuarter = 0;
  #lineOpen = false;

  constructor(output: ProgressOutput, total: number) {
    this.#output = output;
    this.#total = total;
  }

  note(text: string): void {
    this.clear();
    this.#output.write(`${text}\n`);
  }

  tokens(received: number): void {
    if (this.#output.isTTY) {
      this.#output.write(`${CLEAR_LINE}${received} of ${this.#total} tokens`);
      this.#lineOpen = true;
      return;
    }
    const quarter = Math.floor((received / this.#total) * QUARTERS);
    if (quarter <= this.#shownQuarter) return;
    this.#shownQuarter = quarter;
    this.#output.write(`${received} of ${this.#total} tokens\n`);
  }

  /** Removes the updating line, so that what follows starts on a line of its own. */
  clear(): void {
    if (!this.#lineOpen) return;
    this.#output.write(CLEAR_LINE);
    this.#lineOpen = false;
  }
}
