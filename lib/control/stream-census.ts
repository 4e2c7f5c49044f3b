// The live streams of a node, listed for people: each lane is asked for its rows, piece by piece, and streams within this thread are
// added. Owns the questions that are out: one per lane. It must never wait for a lane that is dead or stuck, nor hold up one that
// is not.

import { performance } from 'node:perf_hooks';
import { VeloError } from '../errors.js';
import type { ClientPlane } from '../lanes/client-plane.js';
import { CMD_STREAMS, encodeText } from '../lanes/commands.js';
import { Deadline } from '../lanes/deadline.js';
import {
  FLAG_FENCED,
  FLAG_PAUSED,
  FLAG_STARVING,
  REPORT_FIELDS,
  REPORT_START,
  type ReportField,
  type ReportPlace,
  STATE_ENDING,
  STATE_OPENING,
  type StreamReport,
} from '../lanes/stream-report.js';
import { u64From } from '../wire/bytes.js';
import { MESSENGER_MUX_KEY } from '../wire/names.js';
import { type AnchorEntry, CHANNEL_DEPTH } from './anchor-entry.js';
import type { AnchorRegistry } from './anchor-registry.js';

/** All the time that lanes have to list their streams. */
export const CENSUS_MS = 2_000;

/** One end of a live stream of a node. A stream between two nodes has one row on each, one within a node has two on it. */
export interface StreamInfo {
  /** `out`: this node sends. `in`: it receives. */
  readonly direction: 'out' | 'in';
  /** Instance id of the node at the other end; this node's own for a stream within it. */
  readonly peer: string;
  /** As `StreamSender.negotiatedTransport`: undefined for a stream within the node. */
  readonly transport: string | undefined;
  /** Mux lane, and the number of the lane thread of this node that serves it; both -1 for a stream within the node. */
  readonly lane: number;
  readonly worker: number;
  /** Slot id on the wire: index and generation. */
  readonly slot: number;
  /** The routing session: the same number at both ends. 0 for a stream within the node. */
  readonly session: bigint;
  /** `local` of the anchor's handle, where this thread knows it. */
  readonly anchor: bigint | undefined;
  /** `opening`: the peer may not know the slot yet. `ending`: the last record is on its way. */
  readonly state: 'opening' | 'open' | 'ending';
  /** Records that may be sent before more credit comes. 0: whoever receives is behind by a whole window. */
  readonly credit: number;
  /** Records of a whole window. */
  readonly window: number;
  /** Records that wait for credit. Only `out`. */
  readonly withheld: number;
  /** `out`: records not even pulled yet, behind a parked batch or a full budget. `in`: those that a busy thread left no room for. */
  readonly standing: number;
  /** Records that wait behind a gap. Only `in`. */
  readonly held: number;
  /** Records delivered and not yet seen as read. Only `in`, or within the node. */
  readonly buffered: number;
  /** Bytes that this node keeps for the stream in all of those. */
  readonly bytes: number;
  /** Number of the next record: how many have gone, the opening included. 0 within the node. */
  readonly records: number;
  /** Heartbeat windows in a row in which nothing came; at three the stream ends. Only `in`. */
  readonly silentWindows: number;
  /** It wants to send and has no credit. Only `out`. */
  readonly starving: boolean;
  /** Its byte budget is used up: nothing more is pulled from its sender. Only `out`. */
  readonly paused: boolean;
  /** It waits until a large record of its own was admitted. Only `out`. */
  readonly fenced: boolean;
  /** Milliseconds since it was opened, or asked to be. */
  readonly ageMs: number;
}

interface Question {
  readonly token: number;
  /** Undefined: the lane has died. */
  readonly answer: (report: StreamReport | undefined) => void;
}

export class StreamCensus {
  /** What each lane was asked and has not answered. */
  private readonly questions: (Question | undefined)[] = [];
  private nextToken = 0;
  private running: Promise<StreamInfo[]> | undefined;
  private queued: Promise<StreamInfo[]> | undefined;
  private ended: VeloError | undefined;

  constructor(
    private readonly plane: ClientPlane,
    private readonly registry: AnchorRegistry,
    private readonly self: string,
    private readonly timeMs: number = CENSUS_MS,
  ) {}

  /** One at a time; whoever asks meanwhile shares the next one. Rejects with `ERR_CLOSED` only. */
  async take(): Promise<StreamInfo[]> {
    if (this.running === undefined) return [...(await this.start())];
    this.queued ??= this.running.then(
      () => this.start(),
      () => this.start(),
    );
    return [...(await this.queued)];
  }

  private start(): Promise<StreamInfo[]> {
    this.queued = undefined;
    const run = this.run();
    this.running = run;
    const over = () => {
      // With another queued behind it, it still stands for "one runs": two at once would ask one lane twice.
      if (this.running === run && this.queued === undefined) this.running = undefined;
    };
    run.then(over, over);
    return run;
  }

  private async run(): Promise<StreamInfo[]> {
    const rows: StreamInfo[] = [];
    const deadline = new Deadline();
    deadline.limit(this.timeMs);
    let over = false;
    const walks = this.plane.ports.map(async (_port, lane) => {
      let from: ReportPlace | undefined = REPORT_START;
      while (from !== undefined && !over) {
        const report: StreamReport | undefined = await this.ask(lane, from);
        if (report === undefined || over) return;
        this.read(report, lane, rows);
        from = report.next;
      }
    });
    await Promise.race([Promise.all(walks), deadline.passed]);
    over = true;
    deadline.clear();
    if (this.ended !== undefined) throw this.ended;
    this.nameAnchors(rows);
    for (const entry of this.registry.entries()) this.addLocal(entry, rows);
    return rows;
  }

  /** One piece of a lane. Undefined: it has died, or owes an earlier answer still. */
  private ask(lane: number, from: ReportPlace): Promise<StreamReport | undefined> {
    const port = this.plane.port(lane);
    if (!port.isOpen || this.ended !== undefined || this.questions[lane] !== undefined)
      return Promise.resolve(undefined);
    return new Promise((resolve) => {
      const token = this.nextToken++ >>> 0;
      this.questions[lane] = { token, answer: resolve };
      try {
        port.command(CMD_STREAMS, token, encodeText(JSON.stringify(from)));
      } catch (error) {
        this.questions[lane] = undefined;
        if (!VeloError.is(error)) throw error;
        resolve(undefined);
      }
    });
  }

  answered(lane: number, token: number, report: string): void {
    const question = this.questions[lane];
    if (question?.token !== token) return;
    this.questions[lane] = undefined;
    question.answer(JSON.parse(report) as StreamReport);
  }

  laneDied(lane: number): void {
    const question = this.questions[lane];
    this.questions[lane] = undefined;
    question?.answer(undefined);
  }

  /** The node is closed. */
  end(error: VeloError): void {
    this.ended = error;
    for (let lane = 0; lane < this.questions.length; lane++) this.laneDied(lane);
  }

  private read({ peers, rows }: StreamReport, worker: number, into: StreamInfo[]): void {
    for (let at = 0; at < rows.length; at += REPORT_FIELDS.length) {
      const row = {} as Record<ReportField, number>;
      REPORT_FIELDS.forEach((field, i) => {
        row[field] = rows[at + i]!;
      });
      into.push(infoOf(row, peers[row.peer]!, worker));
    }
  }

  /** A lane knows the session that a slot claimed, and main whose it is. */
  private nameAnchors(rows: StreamInfo[]): void {
    const anchors = new Map<bigint, bigint>();
    for (const { feed, handle } of this.registry.entries())
      if (feed !== undefined) anchors.set(BigInt(feed.row.identity), handle.local);
    for (const [i, row] of rows.entries())
      if (row.direction === 'in') rows[i] = { ...row, anchor: anchors.get(row.session) };
  }

  private addLocal({ local, handle, channel, localSince }: AnchorEntry, rows: StreamInfo[]): void {
    if (local === undefined) return;
    const row: Omit<StreamInfo, 'direction'> = {
      ...NOTHING,
      peer: this.self,
      transport: undefined,
      lane: -1,
      worker: -1,
      slot: 0,
      session: 0n,
      anchor: handle.local,
      state: 'open',
      credit: Math.max(0, CHANNEL_DEPTH - channel.length),
      window: CHANNEL_DEPTH,
      buffered: channel.length,
      bytes: channel.byteLength,
      ageMs: performance.now() - localSince,
    };
    rows.push({ direction: 'out', ...row }, { direction: 'in', ...row });
  }
}

const NOTHING = {
  withheld: 0,
  standing: 0,
  held: 0,
  records: 0,
  silentWindows: 0,
  starving: false,
  paused: false,
  fenced: false,
} as const;

function infoOf(row: Record<ReportField, number>, peer: string, worker: number): StreamInfo {
  const out = row.incoming === 0;
  return {
    direction: out ? 'out' : 'in',
    peer,
    transport: MESSENGER_MUX_KEY,
    lane: row.lane,
    worker,
    slot: row.slot,
    session: u64From(row.sessionHi, row.sessionLo),
    anchor: out ? u64From(row.anchorHi, row.anchorLo) : undefined,
    state: row.state === STATE_OPENING ? 'opening' : row.state === STATE_ENDING ? 'ending' : 'open',
    credit: row.credit,
    window: row.window,
    withheld: row.withheld,
    standing: row.standing,
    held: row.held,
    buffered: row.buffered,
    bytes: row.bytes,
    records: row.records,
    silentWindows: row.silentWindows,
    starving: (row.flags & FLAG_STARVING) !== 0,
    paused: (row.flags & FLAG_PAUSED) !== 0,
    fenced: (row.flags & FLAG_FENCED) !== 0,
    ageMs: row.ageMs,
  };
}
