// A process of a soak: one node, as reader or as writer, driven over IPC. It reports every stream that ends, and describes itself when
// asked. Run with --expose-gc, so that what it says of its memory is not yet-uncollected rubbish.

import { readdirSync } from 'node:fs';
import { Velo } from '../../lib/index.js';
import { AwakeClock } from './awake.js';
import type { ChildSetup, FromChild, Sample, StreamReport, ToChild } from './protocol.js';
import { Reading } from './reading.js';
import { Writing } from './writing.js';

const REPORT_EVERY_MS = 100;
/** A pass of a manual producer. */
const PASS_MS = 4;
const COLLECTIONS = 3;
const SETTLE_MS = 50;

class Child {
  private readonly reports: StreamReport[] = [];
  private ended = 0;
  private readonly clock: AwakeClock;
  private readonly reading: Reading | undefined;
  private toldOpened = 0;
  private pass: NodeJS.Timeout | undefined;
  private readonly reporter: NodeJS.Timeout;

  constructor(
    private readonly node: Velo,
    setup: ChildSetup,
  ) {
    this.clock = new AwakeClock(setup.hangMs, setup.lateMs);
    const report = (ended: StreamReport) => {
      this.ended += 1;
      this.reports.push(ended);
    };
    if (setup.role === 'reader') this.reading = new Reading(node, setup, this.clock, report);
    else new Writing(node, setup.name, this.clock, report);
    if (setup.options.flushPolicy === 'manual') this.pass = setInterval(() => node.flushBatch(), PASS_MS);
    this.reporter = setInterval(() => this.tell(), REPORT_EVERY_MS);
  }

  async obey(message: ToChild): Promise<void> {
    switch (message.do) {
      case 'writer':
        return this.reading?.addWriter(message.name, message.info);
      case 'forget':
        return this.reading?.removeWriter(message.name);
      case 'open':
        return this.reading?.begin(message.streams);
      case 'rest':
        return this.reading?.rest();
      case 'sample': {
        const sample = await this.sample(message.collect);
        this.tell();
        return say({ kind: 'sample', id: message.id, sample });
      }
      case 'end':
        clearInterval(this.pass);
        clearInterval(this.reporter);
        this.clock.stop();
        await this.node.close();
        process.exit(0);
    }
  }

  private tell(): void {
    const opened = this.reading?.opened ?? 0;
    if (opened !== this.toldOpened) say({ kind: 'opened', streams: opened - this.toldOpened });
    this.toldOpened = opened;
    const standstills = this.clock.takeStandstills();
    if (this.reports.length + standstills.length === 0) return;
    say({ kind: 'ended', streams: this.reports.splice(0), standstills });
  }

  private async sample(collect: boolean): Promise<Sample> {
    for (let i = 0; collect && i < COLLECTIONS; i += 1) {
      globalThis.gc?.();
      await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
    }
    const memory = process.memoryUsage();
    const stats = this.node.stats();
    const { anchors, senders, liveSlots, pendingCalls, withheldRecords, stagedRecords, heldRecords } = stats;
    const { rendezvousSlots, rendezvousSlotBytes } = stats;
    const { readerStalls, creditLost, malformedBatches, droppedBadMessage, handlerErrors } = stats;
    return {
      heapBytes: memory.heapUsed,
      externalBytes: memory.external,
      arrayBufferBytes: memory.arrayBuffers,
      rssBytes: memory.rss,
      descriptors: readdirSync('/proc/self/fd').length,
      streams: this.ended,
      open: this.reading?.open.size ?? this.clock.watched,
      gauges: {
        anchors,
        senders,
        liveSlots,
        pendingCalls,
        withheldRecords,
        stagedRecords,
        heldRecords,
        rendezvousSlots,
        rendezvousSlotBytes,
      },
      never: { readerStalls, creditLost, malformedBatches, droppedBadMessage, handlerErrors },
    };
  }
}

function say(message: FromChild): void {
  if (process.connected) process.send?.(message);
}

const setup = JSON.parse(process.argv[2]!) as ChildSetup;
for (const event of ['uncaughtException', 'unhandledRejection'] as const)
  process.on(event, (error: unknown) => {
    say({ kind: 'broken', what: `${event}: ${error instanceof Error ? error.stack : String(error)}` });
  });
process.on('disconnect', () => process.exit(1));
const node = await Velo.create(setup.options);
const child = new Child(node, setup);
process.on('message', (message) => void child.obey(message as ToChild));
say({ kind: 'ready', info: node.peerInfo.toJSON() });
