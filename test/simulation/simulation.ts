// One run of one seed: builds the nodes, lets the applications and the incidents loose, brings everything to an end and judges it.
// Owns the order of these phases and the reasons that excuse an unclean end.

import type { StreamAnchor, StreamSender, VeloError } from '../../lib/index.js';
import { callEcho, serveEcho } from './calls.js';
import { checkCredit, checkNode } from './checks.js';
import { Cluster } from './cluster.js';
import { Excuses } from './excuses.js';
import { drawExtras } from './extras.js';
import { addCounters, describeReceivers, describeSlots, leftovers, observe } from './inside.js';
import { delayLanePorts } from './lane-ports.js';
import { type Session, Stream } from './ledger.js';
import { beginReading, type Stage, startStream } from './programs.js';
import { draw, type MessagePlan, type Scenario, SHORT_STREAM, type StreamPlan } from './scenario.js';
import type { SimNode } from './sim-node.js';
import { Random } from './world/random.js';
import { RANK_APP } from './world/schedule.js';
import { describe, World } from './world/world.js';

/** Heartbeats after which whatever is to end by silence has ended. */
const SILENCE_HEARTBEATS = 10;
/** An unanswered hello alone takes 30 s, and an attach behind it 5 more, or an abort. */
const SETTLE_MS = 45_000;
const CLOSE_MS = 12_000;
/** Time between two flushes of a manual producer. */
const PASS_MS = 12;
const BEGIN_MS = 10;
const CREDIT_CHECK_STEPS = 8;
const MAX_STEPS = 400_000;
const MAX_FAILURES = 5;

export interface Failure {
  readonly seed: number;
  readonly check: string;
  readonly message: string;
  /** Virtual time, and how many events had run. */
  readonly atMs: number;
  readonly step: number;
}

export interface RunResult {
  readonly seed: number;
  readonly steps: number;
  readonly hash: string;
  readonly failures: readonly Failure[];
  readonly scenario: Scenario;
  readonly streams: number;
  readonly records: number;
  /** Streams by how their readers ended. */
  readonly ends: Readonly<Record<string, number>>;
  /** What the nodes counted, summed. */
  readonly counters: Readonly<Record<string, number>>;
}

export interface RunOptions {
  readonly trace?: ((line: string) => void) | undefined;
  /** Changes what the seed drew. */
  readonly adjust?: ((scenario: Scenario) => Scenario) | undefined;
}

/** Calls that only an end settles: that of a sender, or of a stream. */
function mayWait(what: string): boolean {
  return what.startsWith('read ') || what.startsWith('retired ');
}

/** Runs a seed. Not two at a time: a world stands in for the whole process's timers and network. */
export async function simulate(seed: number, options: RunOptions = {}): Promise<RunResult> {
  const drawn = drawExtras(new Random(seed * 2 + 2 ** 32), draw(new Random(seed * 2 + 1)));
  const run = new Simulation(seed, options.adjust?.(drawn) ?? drawn, options.trace);
  return await run.run();
}

class Simulation implements Stage {
  private readonly world: World;
  private readonly cluster: Cluster;
  private readonly excuses: Excuses;
  private readonly streams: Stream[] = [];
  private readonly anchors = new Map<Stream, { anchor: StreamAnchor<Uint8Array>; plan: StreamPlan }>();
  private readonly forgotten: { node: SimNode; session: Session; sender: StreamSender<Uint8Array> }[] = [];
  private readonly failures: Failure[] = [];
  private hurry = false;
  private tidied = false;
  /** Consumers whose streams are about to begin. */
  private readonly opening = new Set<{ readonly consumer: SimNode }>();
  private streamIds = 0;

  constructor(
    private readonly seed: number,
    private readonly scenario: Scenario,
    trace: ((line: string) => void) | undefined,
  ) {
    this.world = new World(seed, () => ({ ...scenario.weather }), {
      afterEvent: () => this.afterEvent(),
      failed: (check, message) => this.failed(check, message),
      trace,
    });
    this.cluster = new Cluster(this.world, scenario, {
      failed: (check, message) => this.failed(check, message),
      made: (node) => serveEcho(node),
      laneDies: (node, lane) => this.excuses.laneDies(node, lane, this.streams),
    });
    this.excuses = new Excuses(this.cluster, (check, message) => this.failed(check, message));
  }

  private get nodes(): readonly SimNode[] {
    return this.cluster.nodes;
  }

  async run(): Promise<RunResult> {
    const undelay = delayLanePorts(this.world);
    const unobserve = observe((check, message) => this.failed(check, message));
    try {
      await this.world.enter(async () => {
        await this.start();
        this.planAll();
        // A little longer than the last stream takes to begin.
        await this.phase(this.world.now + this.scenario.activeMs + BEGIN_MS);
        await this.settle();
        await this.tidy();
        await this.closeAll();
      });
    } finally {
      unobserve();
      undelay();
    }
    const ends: Record<string, number> = {};
    const counters: Record<string, number> = {};
    for (const { velo } of this.nodes) if (velo !== undefined) addCounters(velo, counters);
    for (const { readerEnd } of this.streams) ends[readerEnd] = (ends[readerEnd] ?? 0) + 1;
    return {
      seed: this.seed,
      steps: this.world.steps,
      hash: this.world.hash,
      failures: this.failures,
      scenario: this.scenario,
      streams: this.streams.length,
      records: this.streams.reduce(
        (sum, { sessions }) => sum + sessions.reduce((all, { received }) => all + received, 0),
        0,
      ),
      ends,
      counters,
    };
  }

  // ---- phases

  get ending(): boolean {
    return this.hurry;
  }

  private get over(): boolean {
    return this.failures.length > 0;
  }

  private async phase(until: number, stop: () => boolean = () => false): Promise<void> {
    const tooMany = () => {
      if (this.world.steps < MAX_STEPS) return false;
      this.failed('no end', `${MAX_STEPS} events, and no end in sight`);
      return true;
    };
    await this.world.run(until, () => this.over || stop() || tooMany());
  }

  private async start(): Promise<void> {
    for (const options of this.scenario.nodes) this.cluster.make(options);
    await this.phase(this.world.now + 1_000, () => this.nodes.every(({ velo }) => velo !== undefined));
    for (const node of this.nodes) if (node.velo === undefined) this.failed('start', `n${node.number} did not start`);
    if (this.over) return;
    this.cluster.introduceAll();
    if (this.scenario.saturated) for (const node of this.nodes) this.cluster.everybody(node, 'saturated');
    await this.phase(this.world.now + 2);
  }

  private planAll(): void {
    for (const incident of this.scenario.incidents)
      this.world.schedule.after(incident.at, RANK_APP, undefined, incident.what, () => this.cluster.happen(incident));
    for (const plan of this.scenario.streams)
      this.world.schedule.after(2 + plan.at, RANK_APP, undefined, 'open', () => this.open(plan, undefined));
    for (const [mark, message] of this.scenario.messages.entries())
      this.world.schedule.after(message.at, RANK_APP, undefined, 'message', () => this.message(message, mark));
    if (this.scenario.reuses > 0) this.reuse();
    for (const node of this.nodes) this.pass(node, this.world.random.chance(0.5));
  }

  /** The loop of a decode engine, whose passes go on while one stream waits. Not at once everywhere: heartbeats must do without. */
  private pass(node: SimNode, now: boolean): void {
    if (node.options.flushPolicy !== 'manual') return;
    this.world.post(node.process, PASS_MS, 'pass', () => {
      if (node.closed) return;
      if (now || this.hurry) node.velo.flushBatch();
      this.pass(node, now);
    });
  }

  private open(plan: StreamPlan, at: SimNode | undefined): Stream | undefined {
    const ready = this.cluster.ready();
    if (ready.length === 0) return undefined;
    const consumer = at ?? this.world.random.pick(ready);
    const stream = new Stream(++this.streamIds, consumer, (check, message) => this.failed(check, message));
    this.opening.add(stream);
    this.world.post(consumer.process, 0.01, 'anchor', () => {
      this.opening.delete(stream);
      if (!consumer.alive || consumer.leaving) return;
      this.streams.push(stream);
      const anchor = startStream(this, stream, plan);
      if (anchor !== undefined) this.anchors.set(stream, { anchor, plan });
    });
    return stream;
  }

  private message({ bytes }: MessagePlan, mark: number): void {
    const ready = this.cluster.ready();
    if (ready.length < 2) return;
    const from = this.world.random.pick(ready);
    const to = this.world.random.pick(ready.filter((node) => node !== from));
    this.world.post(from.process, 0.01, 'call', () => {
      if (!from.alive || from.leaving) return;
      const deaths = this.cluster.laneDeaths;
      const stood = this.cluster.stands(from) && this.cluster.stands(to);
      callEcho(from, to, bytes, mark).then(
        (fault) => {
          this.world.note(`call ${mark} ${fault?.message ?? 'is right'}`);
          if (fault === undefined) return;
          const befell = [from, to].some(({ alive, leaving }) => !alive || leaving) || !stood;
          const excused = befell || this.cluster.laneDeaths !== deaths || this.cluster.incidents(from, to).length > 0;
          if (fault.error === undefined || !excused)
            this.failed(fault.check, `from n${from.number} to n${to.number}: ${fault.message}`);
        },
        (error: unknown) => this.failed('exception', describe(error)),
      );
    });
  }

  /** Streams one after the other from one node to one other: their slots have one index and all its generations. */
  private reuse(): void {
    let left = this.scenario.reuses;
    const consumer = this.nodes[0]!;
    const next = () => {
      if (left-- <= 0 || !consumer.alive || consumer.leaving) return;
      const stream = this.open(SHORT_STREAM, consumer);
      const look = () => {
        if (stream !== undefined && stream.readerEnd === 'open' && !this.hurry)
          this.world.post(consumer.process, 2, 'look', look);
        else next();
      };
      look();
    };
    next();
  }

  /** Nothing bad happens any more: everybody comes to an end. */
  private async settle(): Promise<void> {
    if (this.over) return;
    this.hurry = true;
    this.world.network.clear();
    for (const [stream, { anchor, plan }] of this.anchors)
      if (plan.absent && stream.consumer.alive)
        this.world.post(stream.consumer.process, this.world.random.within(0, 50), 'late reader', () => {
          beginReading(this, stream, plan, anchor);
        });
    const limit = this.world.now + SETTLE_MS + SILENCE_HEARTBEATS * this.scenario.heartbeatMs;
    await this.phase(limit, () => this.isQuiet());
    if (this.over) return;
    for (const stream of this.streams) this.judgeWaiting(stream);
    this.judgePrograms();
  }

  private isQuiet(): boolean {
    if ([...this.opening].some(({ consumer }) => consumer.alive)) return false;
    if (!this.streams.every((stream) => this.isSettled(stream))) return false;
    return this.nodes.every((node) => !node.alive || node.waiting.every(mayWait));
  }

  /** Nothing more will come of the stream by itself. */
  private isSettled(stream: Stream): boolean {
    return (
      !stream.consumer.alive || stream.readerEnd !== 'open' || this.isUnattached(stream) || this.isForgotten(stream)
    );
  }

  /** It waits for a sender that will not come. */
  private isUnattached(stream: Stream): boolean {
    const last = stream.sessions[stream.sessions.length - 1];
    if (last === undefined || last.end === 'detached') return true;
    // One that died on its way may have asked for nothing yet.
    return !last.attached && (last.end === 'failed' || last.producer.process.dead);
  }

  private isForgotten(stream: Stream): boolean {
    return this.forgotten.some(({ node, session }) => node.alive && stream.sessions.includes(session));
  }

  private judgeWaiting(stream: Stream): void {
    const { consumer } = stream;
    if (this.isSettled(stream) || consumer.leaving) return;
    const last = stream.sessions[stream.sessions.length - 1]!;
    const { producer } = last;
    const local = this.anchors.get(stream)!.anchor.handle.local;
    const there = producer.alive ? describeSlots(producer.velo, local) : 'gone';
    const read = `${last.received} of ${last.accepted} were read`;
    this.failed(
      'waits for ever',
      `${stream.label}: sender ${last.number} on n${producer.number} is ${last.end}, ${read}; ` +
        `n${producer.number} ${there}; n${consumer.number} ${describeReceivers(consumer.velo)}`,
    );
  }

  private judgePrograms(): void {
    for (const node of this.cluster.ready()) {
      if (!this.cluster.isUntouched(node)) continue;
      for (const what of node.waiting)
        if (!mayWait(what)) this.failed('caller waits for ever', `n${node.number}: ${what}`);
    }
  }

  /** The applications let go of what they still hold. Where nothing went wrong, nothing is left then. */
  private async tidy(): Promise<void> {
    if (this.over) return;
    this.tidied = true;
    for (let i = 0; i < this.forgotten.length; i++) this.remember(i);
    for (const [stream, { anchor }] of this.anchors)
      if (stream.readerEnd === 'open' && !this.isForgotten(stream) && stream.consumer.alive)
        this.world.post(stream.consumer.process, 1, 'cancel', () => {
          if (stream.readerEnd !== 'open') return;
          stream.cancelled = true;
          anchor.cancel();
        });
    await this.phase(this.world.now + 3_000 + SILENCE_HEARTBEATS * this.scenario.heartbeatMs);
    if (this.over) return;
    for (const stream of this.streams) this.judgeRetired(stream);
    for (const node of this.cluster.ready()) {
      if (!this.cluster.isUntouched(node)) continue;
      this.nothingLeft(node, 'left over');
    }
  }

  /**
   * Every sender knows by now what became of its output; it went where nothing kept it from going. Where batches are lost on connections
   * that stand, a sender without credit may wait until its node closes.
   */
  private judgeRetired(stream: Stream): void {
    const { mood } = this.scenario;
    const cancelMayBeLost = mood === 'lossy' || mood === 'chaos';
    for (const { attached, end, retired, producer, number } of stream.sessions) {
      if (!attached || !producer.alive || producer.leaving) continue;
      if (retired === undefined && !(cancelMayBeLost && this.excuses.isTroubled(stream))) {
        const anchor = this.anchors.get(stream)!.anchor.handle.local;
        const slots = describeSlots(producer.velo, anchor);
        this.failed(
          'retired',
          `${stream.label}: sender ${number} on n${producer.number} (${end}) was never told; ${slots}`,
        );
      }
      const ended = end === 'finalized' || end === 'detached' || end === 'closed';
      if (retired === 'discarded' && ended && stream.readerEnd === 'finalized' && !this.excuses.isTroubled(stream))
        this.failed('retired', `${stream.label}: all came, and sender ${number} was told that it did not leave`);
    }
  }

  private nothingLeft(node: SimNode, check: string): void {
    // A hello that was written to a lane that died waits for half a minute.
    const mayStand = check === 'left over' && this.cluster.laneDeaths > 0 ? 'calls' : '';
    const left = Object.entries(leftovers(node.velo)).filter(([name, count]) => count !== 0 && name !== mayStand);
    if (left.length > 0)
      this.failed(check, `n${node.number}: ${left.map(([name, count]) => `${name} ${count}`).join(', ')}`);
  }

  private async closeAll(): Promise<void> {
    if (this.over) return;
    for (const node of this.nodes) if (node.alive) this.cluster.close(node, this.world.random.within(0, 20));
    await this.phase(this.world.now + CLOSE_MS, () => this.nodes.every((node) => !node.alive));
    await this.phase(this.world.now + CLOSE_MS);
    if (this.over) return;
    for (const node of this.nodes) {
      if (node.process.dead) continue;
      if (!node.closed) this.failed('close hangs', `n${node.number}`);
      this.nothingLeft(node, 'left after close');
      if (node.waiting.length > 0) this.failed('unsettled', `n${node.number}: ${node.waiting.join(', ')}`);
      const held = [...node.process.holdings].map(({ what }) => what);
      if (held.length > 0) this.failed('left in the world', `n${node.number}: ${held.join(', ')}`);
    }
  }

  // ---- after every event

  private afterEvent(): void {
    const { current } = this.world.schedule;
    if (current === undefined) return;
    const node = this.nodes.find(({ process }) => process === current);
    if (node?.velo === undefined || node.process.dead) return;
    const deaths = this.cluster.laneDeaths > 0;
    const calm = !this.world.network.incidents.any && !deaths;
    const disturbed = deaths || (!calm && !this.cluster.isUntouched(node));
    const report = (check: string, message: string) => this.failed(check, message);
    checkNode(node, calm && this.nodes.every(({ leaving }) => !leaving), disturbed || node.leaving, report);
    if (this.world.steps % CREDIT_CHECK_STEPS !== 0) return;
    const standing = this.nodes.filter((other) => !other.process.dead && other.velo !== undefined);
    checkCredit(standing, (a, b) => this.cluster.incidents(a, b).length === 0, report);
  }

  // ---- what programs need

  failed(check: string, message: string): void {
    if (this.failures.length >= MAX_FAILURES) return;
    this.failures.push({ seed: this.seed, check, message, atMs: this.world.now, step: this.world.steps });
  }

  pause(node: SimNode, ms: number): Promise<void> {
    return this.world.sleep(node.process, this.hurry ? 0.05 : ms);
  }

  post(node: SimNode, ms: number, label: string, run: () => void): void {
    this.world.post(node.process, ms, label, () => {
      if (!node.closed) run();
    });
  }

  chance(probability: number): boolean {
    return this.world.random.chance(probability);
  }

  between(low: number, high: number): number {
    return this.world.random.between(low, high);
  }

  producerFor(stream: Stream): SimNode | undefined {
    const ready = this.cluster.ready();
    const others = ready.filter((node) => node !== stream.consumer);
    if (others.length === 0) return undefined;
    // Now and then a sender on the anchor's own node.
    return this.world.random.chance(0.04) ? this.world.random.pick(ready) : this.world.random.pick(others);
  }

  judge(stream: Stream, what: string, error: VeloError): void {
    this.world.note(`${what} of ${stream.id}: ${error.code}`);
    if (error.code === 'ERR_DESERIALIZATION')
      this.failed('bytes', `${stream.label}: ${what} met ${error.message} ${describe(error.cause)}`);
    if (this.excuses.isExcused(stream, error)) return;
    this.failed(
      'unexcused end',
      `${stream.label}: ${what} ended with ${error.code} (${error.message}), and nothing had happened`,
    );
  }

  begins(stream: Stream, session: Session): void {
    this.excuses.begins(stream, session);
  }

  opened(session: Session, anchor: bigint): void {
    this.excuses.opened(session, anchor);
  }

  forget(node: SimNode, session: Session, sender: StreamSender<Uint8Array>): void {
    this.forgotten.push({ node, session, sender });
    // Late: everybody has let go already.
    if (this.tidied) this.remember(this.forgotten.length - 1);
  }

  private remember(at: number): void {
    const { node, session, sender } = this.forgotten[at]!;
    this.world.post(node.process, 1, 'remembered', () => {
      session.end = 'closed';
      void node.wait('close', sender.close());
    });
  }

  note(what: string): void {
    this.world.note(what);
  }
}
