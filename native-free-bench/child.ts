// Owns one measured process: either half of one row. Does what the harness asks over the control channel, one command at a time.
// Must never decide what is measured, and must end when the harness does.

import { loadRow } from './rows/index.js';
import type { ConsumerSide, Mode, ProducerSide } from './rows/row.js';
import { snapshotCpu } from './thread-cpu.js';
import type { Phase } from './workload.js';
import { runBusy, runLone, runPasses, Sink } from './workload.js';

export type Role = 'producer' | 'consumer';

/** What the harness asks; the answer's type is the matching entry of `Answers`. */
export type Command =
  | { cmd: 'open'; role: Role; row: string; mode: Mode; streams: number; hello?: unknown }
  | { cmd: 'join'; reply: unknown }
  | { cmd: 'attach' }
  | { cmd: 'snapshot' }
  | { cmd: 'arm'; phase: Phase; expected?: number | undefined }
  | { cmd: 'expect'; expected: number }
  | { cmd: 'full' }
  | { cmd: 'report'; perStream: number }
  | { cmd: 'passes'; phase: Phase; passes?: number | undefined; ms?: number | undefined }
  | { cmd: 'lone'; count: number; everyMs: number }
  | { cmd: 'busy'; passes: number; passMs: number }
  | { cmd: 'finish' }
  | { cmd: 'close' };

export type Request = Command & { id: number };
export type Response = { id: number; result?: unknown; error?: string } | { fatal: string } | { up: true };

class Child {
  private streams = 0;
  private sink: Sink | undefined;
  private consumer: ConsumerSide | undefined;
  private producer: ProducerSide | undefined;

  handle(command: Command): unknown {
    switch (command.cmd) {
      case 'open':
        return this.open(command);
      case 'join':
        return this.consumer!.join(command.reply);
      case 'attach':
        return this.producer!.attach();
      case 'snapshot':
        return snapshotCpu();
      case 'arm':
        return this.sink!.arm(command.phase, command.expected);
      case 'expect':
        this.sink!.expect(command.expected);
        return this.sink!.whenFull();
      case 'full':
        return this.sink!.whenFull();
      case 'report':
        this.sink!.verify(command.perStream);
        return this.sink!.report();
      case 'passes':
        return runPasses(this.producer!, { ...command, streams: this.streams });
      case 'lone':
        return runLone(this.producer!, command.count, command.everyMs);
      case 'busy':
        return runBusy(this.producer!, { ...command, streams: this.streams });
      case 'finish':
        return this.producer === undefined ? this.consumer!.ended() : this.producer.finish();
      case 'close':
        return this.producer === undefined ? this.consumer!.close() : this.producer.close();
    }
  }

  private async open(command: Extract<Command, { cmd: 'open' }>): Promise<unknown> {
    const row = await loadRow(command.row);
    const context = { name: command.row, mode: command.mode, streams: command.streams };
    this.streams = command.streams;
    if (command.role === 'consumer') {
      this.sink = new Sink(command.streams);
      this.consumer = await row.openConsumer(context, this.sink);
      return this.consumer.hello;
    }
    this.producer = await row.openProducer(context, command.hello);
    return this.producer.reply;
  }
}

function post(message: Response, sent: () => void = () => undefined): void {
  process.send?.(message, undefined, undefined, sent);
}

const textOf = (error: unknown): string => (error instanceof Error ? (error.stack ?? error.message) : String(error));

const child = new Child();
process.on('message', async (request: Request) => {
  try {
    const result = await child.handle(request);
    post({ id: request.id, result }, () => {
      if (request.cmd === 'close') process.exit(0);
    });
  } catch (error) {
    post({ id: request.id, error: textOf(error) });
  }
});
process.on('disconnect', () => process.exit(0));
process.on('uncaughtException', (error) => post({ fatal: textOf(error) }));
process.on('unhandledRejection', (error) => post({ fatal: textOf(error) }));
post({ up: true });
