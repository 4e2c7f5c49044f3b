import { expect } from 'chai';
import { VeloError } from '../../../lib/errors.js';
import type { ReplyPlan } from '../../../lib/messenger/dispatch-plan.js';
import {
  type DispatchRequest,
  HandlerTable,
  OVERFLOW_TEXT,
  QUEUE_FULL_TEXT,
} from '../../../lib/messenger/handler-table.js';
import { amHandler, type MessageHandler, typedUnary, unaryHandler } from '../../../lib/messenger/handlers.js';
import { RESPONSE_ACK, RESPONSE_NONE, RESPONSE_UNARY } from '../../../lib/wire/envelope.js';

const NO_BYTES = new Uint8Array(0);

function request(handler: string, responseType = RESPONSE_UNARY, sender = 1): DispatchRequest {
  return {
    responseType,
    handler,
    headers: undefined,
    id: { workerHi: 0, workerLo: sender, slot: 0, generation: 0 },
  };
}

async function settle(): Promise<void> {
  await new Promise<void>((resolve) => setImmediate(resolve));
}

function thrownBy(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    if (VeloError.is(error)) return error.code;
    throw error;
  }
  return 'nothing thrown';
}

describe('handler table', () => {
  let table: HandlerTable;
  let plans: ReplyPlan[];
  const reply = (plan: ReplyPlan): void => {
    plans.push(plan);
  };

  beforeEach(() => {
    table = new HandlerTable();
    plans = [];
  });

  it('keeps application and system names apart, and lists both', () => {
    table.register(
      'ping',
      amHandler(() => {}),
    );
    table.registerSystem(
      '_hello',
      typedUnary(() => ({ handlers: [] })),
    );
    expect(table.names()).to.deep.equal(['ping', '_hello']);
    expect(
      thrownBy(() =>
        table.register(
          '_ping',
          amHandler(() => {}),
        ),
      ),
    ).to.equal('ERR_INVALID_ARGUMENT');
    expect(
      thrownBy(() =>
        table.registerSystem(
          'ping',
          amHandler(() => {}),
        ),
      ),
    ).to.equal('ERR_INVALID_ARGUMENT');
    expect(
      thrownBy(() =>
        table.registerSystem(
          '_hello',
          amHandler(() => {}),
        ),
      ),
    ).to.equal('ERR_INVALID_STATE');
    expect(
      thrownBy(() =>
        table.register(
          '',
          amHandler(() => {}),
        ),
      ),
    ).to.equal('ERR_INVALID_ARGUMENT');
    expect(
      thrownBy(() =>
        table.register(
          'é'.repeat(32_768),
          amHandler(() => {}),
        ),
      ),
    ).to.equal('ERR_INVALID_ARGUMENT');
    table.register(
      'é'.repeat(32_767),
      amHandler(() => {}),
    );
    expect(table.names().length).to.equal(3);
  });

  it('takes no function for a handler, and nothing else that is none', () => {
    for (const none of [() => NO_BYTES, undefined, null, {}, 'handler'])
      expect(thrownBy(() => table.register('name', none as unknown as MessageHandler))).to.equal(
        'ERR_INVALID_ARGUMENT',
      );
    expect(table.names()).to.deep.equal([]);
  });

  it('replaces a handler on the same name, for messages from then on', async () => {
    table.register(
      'v',
      unaryHandler(() => new Uint8Array([1])),
    );
    table.dispatch(request('v'), NO_BYTES, reply);
    table.register(
      'v',
      unaryHandler(() => new Uint8Array([2])),
    );
    table.dispatch(request('v'), NO_BYTES, reply);
    await settle();
    expect(plans).to.deep.equal([
      { reply: 'response', bytes: new Uint8Array([1]) },
      { reply: 'response', bytes: new Uint8Array([2]) },
    ]);
    expect(table.names()).to.deep.equal(['v']);
  });

  it('answers for handlers it does not know, except to fire and forget', async () => {
    for (const type of [RESPONSE_NONE, RESPONSE_ACK, RESPONSE_UNARY])
      table.dispatch(request('nope', type), NO_BYTES, reply);
    await settle();
    const nack = { reply: 'nack', text: "Handler 'nope' not found" };
    expect(plans).to.deep.equal([nack, nack]);
  });

  it('starts unordered handlers in arrival order and lets them overlap', async () => {
    const events: string[] = [];
    table.register(
      'slow',
      unaryHandler(async (payload) => {
        events.push(`start ${payload[0]}`);
        if (payload[0] === 0) await settle();
        events.push(`end ${payload[0]}`);
      }),
    );
    table.dispatch(request('slow'), new Uint8Array([0]), reply);
    table.dispatch(request('slow'), new Uint8Array([1]), reply);
    expect(events).to.deep.equal(['start 0', 'start 1', 'end 1']);
    expect(table.inFlight).to.equal(2);
    await settle();
    await settle();
    expect(events.at(-1)).to.equal('end 0');
    expect(table.inFlight).to.equal(0);
  });

  it('AR-19 an ordered lane waits for the reply of the message before, and survives a throwing handler', async () => {
    const events: string[] = [];
    table.register(
      'ordered',
      unaryHandler(
        (payload) => {
          events.push(`run ${payload[0]}`);
          if (payload[0] === 1) throw new Error('boom');
        },
        { ordered: true },
      ),
    );
    for (const index of [0, 1, 2]) {
      table.dispatch(request('ordered'), new Uint8Array([index]), async (plan) => {
        await settle();
        events.push(`${plan.reply} ${index}`);
      });
    }
    while (table.inFlight > 0) await settle();
    expect(events).to.deep.equal(['run 0', 'response 0', 'run 1', 'responseError 1', 'run 2', 'response 2']);
    expect(table.ordered.counts).to.include({ lanesCreated: 1, failed: 0 });
  });

  it('AR-19 senders of an ordered handler run side by side, those of a global one do not', () => {
    const started: string[] = [];
    const hang = (name: string) => (payload: Uint8Array) => {
      started.push(`${name}${payload[0]}`);
      return new Promise<undefined>(() => {});
    };
    table.register('s', unaryHandler(hang('s'), { ordered: true }));
    table.register('g', unaryHandler(hang('g'), { orderedGlobal: true }));
    for (const sender of [1, 2]) {
      table.dispatch(request('s', RESPONSE_UNARY, sender), new Uint8Array([sender]), reply);
      table.dispatch(request('g', RESPONSE_UNARY, sender), new Uint8Array([sender]), reply);
    }
    expect(started).to.deep.equal(['s1', 'g1', 's2']);
    expect(table.ordered.queued).to.equal(1);
    expect(table.inFlight).to.equal(4);
  });

  it('sheds a message for a full ordered lane and tells its caller', async () => {
    table.register(
      'full',
      amHandler(() => new Promise(() => {}), { ordered: true, maxQueueDepth: 2, overflow: 'reject' }),
    );
    for (let i = 0; i < 3; i += 1) table.dispatch(request('full', RESPONSE_ACK), NO_BYTES, reply);
    table.dispatch(request('full', RESPONSE_NONE), NO_BYTES, reply);
    await settle();
    expect(plans).to.deep.equal([{ reply: 'nack', text: 'Handler failed: ordered lane queue full' }]);
    expect(table.ordered.counts.rejected).to.equal(2);
  });

  it('under warn a lane takes more than its depth, and says so once it is there', async () => {
    const warnings: string[] = [];
    table = new HandlerTable({ warn: (message) => warnings.push(message) });
    const ran: number[] = [];
    let open: () => void = () => {};
    const first = new Promise<void>((resolve) => {
      open = resolve;
    });
    table.register(
      'deep',
      amHandler(
        async (payload) => {
          ran.push(payload.length);
          await first;
        },
        { ordered: true, maxQueueDepth: 2 },
      ),
    );
    for (let i = 0; i < 5; i += 1) table.dispatch(request('deep', RESPONSE_ACK), new Uint8Array(i), reply);
    expect(warnings).to.have.length(1);
    expect(warnings[0]).to.include("'deep'").and.to.include('2');
    open();
    while (table.inFlight > 0) await settle();
    expect(ran).to.deep.equal([0, 1, 2, 3, 4]);
    expect(plans).to.deep.equal(ran.map(() => ({ reply: 'ack' })));
  });

  it('a queue keeps its own bound under warn: 8,192 wait, one more is refused', async () => {
    table.register(
      'deep',
      amHandler(() => new Promise(() => {}), { ordered: true, maxQueueDepth: 1 }),
    );
    for (let i = 0; i < 8_194; i += 1) table.dispatch(request('deep', RESPONSE_ACK), NO_BYTES, reply);
    await settle();
    expect(plans).to.deep.equal([{ reply: 'nack', text: 'Handler failed: ordered lane queue full' }]);
    expect(table.inFlight).to.equal(8_193);
  });

  it('maxConcurrent of an unordered handler lets so many run, the others in order of arrival, of all senders', async () => {
    const started: number[] = [];
    const ends: (() => void)[] = [];
    table.register(
      'two',
      unaryHandler(
        (payload) => {
          started.push(payload[0]!);
          return new Promise<undefined>((resolve, reject) => {
            ends.push(() => (payload[0] === 1 ? reject(new Error('boom')) : resolve(undefined)));
          });
        },
        { maxConcurrent: 2 },
      ),
    );
    for (let i = 0; i < 5; i += 1) table.dispatch(request('two', RESPONSE_UNARY, i), new Uint8Array([i]), reply);
    expect(started).to.deep.equal([0, 1]);
    expect(table.inFlight).to.equal(5);
    ends[1]!();
    await settle();
    expect(started).to.deep.equal([0, 1, 2]);
    ends[0]!();
    ends[2]!();
    await settle();
    expect(started).to.deep.equal([0, 1, 2, 3, 4]);
    ends[3]!();
    ends[4]!();
    await settle();
    expect(plans.map((plan) => plan.reply)).to.deep.equal(['responseError', ...Array(4).fill('response')]);
    expect([table.inFlight, table.ordered.counts.lanesCreated]).to.deep.equal([0, 0]);
  });

  it('a handler that replaces one with maxConcurrent has its own limit from the first message on', async () => {
    const started: string[] = [];
    const ends: (() => void)[] = [];
    const named = (name: string, maxConcurrent: number) =>
      unaryHandler(
        () => {
          started.push(name);
          return new Promise<undefined>((resolve) => ends.push(() => resolve(undefined)));
        },
        { maxConcurrent },
      );
    const send = (count: number) => {
      for (let i = 0; i < count; i += 1) table.dispatch(request('h'), NO_BYTES, reply);
    };
    table.register('h', named('wide', 2));
    send(3);
    table.register('h', named('narrow', 1));
    send(3);
    expect(started).to.deep.equal(['wide', 'wide', 'narrow']);
    for (const end of ends.splice(0)) end();
    await settle();
    expect(started.slice(3)).to.deep.equal(['wide', 'narrow']);
    while (ends.length > 0) {
      for (const end of ends.splice(0)) end();
      await settle();
    }
    expect(started.slice(5)).to.deep.equal(['narrow']);
    expect([plans.length, table.inFlight, table.limited.lanes]).to.deep.equal([6, 0, 0]);
  });

  it('what waits for maxConcurrent is bounded, and refused with a text', async () => {
    table.register(
      'one',
      amHandler(() => new Promise(() => {}), { maxConcurrent: 1 }),
    );
    for (let i = 0; i < 8_194; i += 1) table.dispatch(request('one', RESPONSE_UNARY), NO_BYTES, reply);
    await settle();
    expect(plans).to.deep.equal([{ reply: 'nack', text: QUEUE_FULL_TEXT }]);
  });

  it('maxConcurrent of an ordered handler bounds the lanes that are mid-run, replies included', async () => {
    const events: string[] = [];
    let running = 0;
    let most = 0;
    let replies = 0;
    table.register(
      'lanes',
      unaryHandler(
        async ([sender = 0, n = 0]) => {
          events.push(`run ${sender}.${n}`);
          running += 1;
          most = Math.max(most, running);
          await settle();
          if (sender === 1) throw new Error('boom');
        },
        { ordered: true, maxConcurrent: 2 },
      ),
    );
    for (const n of [0, 1, 2]) {
      for (const sender of [1, 2, 3]) {
        table.dispatch(request('lanes', RESPONSE_UNARY, sender), new Uint8Array([sender, n]), async () => {
          await settle();
          running -= 1;
          replies += 1;
        });
      }
    }
    expect(events, 'the third lane waits').to.deep.equal(['run 1.0', 'run 2.0']);
    while (table.inFlight > 0) await settle();
    expect([replies, running, most]).to.deep.equal([9, 0, 2]);
    for (const sender of [1, 2, 3])
      expect(events.filter((event) => event.startsWith(`run ${sender}.`))).to.deep.equal(
        [0, 1, 2].map((n) => `run ${sender}.${n}`),
      );
  });

  it('names the instance of a sender that is registered', async () => {
    table = new HandlerTable({ instanceOf: (workerId) => (workerId === 1n ? 'an instance' : undefined) });
    const seen: (string | undefined)[] = [];
    table.register(
      'who',
      amHandler((_, { senderInstanceId }) => {
        seen.push(senderInstanceId);
      }),
    );
    table.dispatch(request('who', RESPONSE_NONE, 1), NO_BYTES, reply);
    table.dispatch(request('who', RESPONSE_NONE, 2), NO_BYTES, reply);
    expect(seen).to.deep.equal(['an instance', undefined]);
  });

  it('refuses requests above maxInFlightBytes, unless there is no other', async () => {
    table = new HandlerTable({ maxInFlightBytes: 100 });
    let open: () => void = () => {};
    const held = new Promise<undefined>((resolve) => {
      open = () => resolve(undefined);
    });
    table.register(
      'hold',
      unaryHandler(() => held),
    );
    for (const bytes of [500, 1]) table.dispatch(request('hold'), new Uint8Array(bytes), reply);
    await settle();
    expect(plans).to.deep.equal([{ reply: 'nack', text: OVERFLOW_TEXT }]);
    expect([table.inFlightBytes, table.overflows]).to.deep.equal([500, 1]);
    open();
    await settle();
    expect(table.inFlightBytes).to.equal(0);
    for (const bytes of [60, 40]) table.dispatch(request('hold'), new Uint8Array(bytes), reply);
    await settle();
    expect([table.inFlightBytes, table.overflows]).to.deep.equal([0, 1]);
  });

  it('a request shed from a full lane gives its bytes back', () => {
    table.register(
      'full',
      amHandler(() => new Promise(() => {}), { ordered: true, maxQueueDepth: 1, overflow: 'reject' }),
    );
    for (let i = 0; i < 3; i += 1) table.dispatch(request('full'), new Uint8Array(10), reply);
    expect(table.inFlightBytes).to.equal(10);
  });

  it('refuses requests above maxInFlight', async () => {
    table = new HandlerTable({ maxInFlight: 2 });
    table.register(
      'hang',
      unaryHandler(() => new Promise<undefined>(() => {})),
    );
    for (let i = 0; i < 3; i += 1) table.dispatch(request('hang'), NO_BYTES, reply);
    await settle();
    expect(plans).to.deep.equal([{ reply: 'nack', text: OVERFLOW_TEXT }]);
    expect([table.inFlight, table.overflows]).to.deep.equal([2, 1]);
    expect(thrownBy(() => new HandlerTable({ maxInFlight: 0 }))).to.equal('ERR_INVALID_ARGUMENT');
  });

  it('a reply that cannot be sent is counted and ends the request', async () => {
    table.register(
      'x',
      unaryHandler(() => {}, { ordered: true }),
    );
    table.dispatch(request('x'), NO_BYTES, () => {
      throw new Error('at once');
    });
    table.dispatch(request('x'), NO_BYTES, () => Promise.reject(new Error('later')));
    table.dispatch(request('x'), NO_BYTES, reply);
    await settle();
    expect(table.replyFailures).to.equal(2);
    expect(plans).to.deep.equal([{ reply: 'response', bytes: undefined }]);
    expect(table.inFlight).to.equal(0);
  });

  it('shows each outcome to its observer and does not care what that does', async () => {
    const seen: string[] = [];
    table = new HandlerTable({
      observe: ({ handler, responseType }, _handler, payloadBytes) => ({
        turn: () => {
          seen.push(`${handler} has its turn`);
        },
        started: () => {
          seen.push(`${handler} starts with ${payloadBytes} bytes`);
          throw new Error('a bad observer');
        },
        ended: (outcome, plan, replied) => {
          seen.push(`${handler} ${responseType} ${outcome.kind} ${plan.reply} ${replied}`);
          throw new Error('a bad observer');
        },
      }),
    });
    table.register(
      'x',
      amHandler(() => {}),
    );
    table.dispatch(request('x', RESPONSE_ACK), NO_BYTES, reply);
    table.dispatch(request('y', RESPONSE_NONE), NO_BYTES, reply);
    await settle();
    expect(seen).to.have.members([
      'x has its turn',
      'x starts with 0 bytes',
      'x 1 ok ack true',
      'y 0 unknownHandler none true',
    ]);
    expect(plans).to.deep.equal([{ reply: 'ack' }]);
    expect(table.observerFailures).to.equal(3);
  });

  it('says when nothing is in flight, ordered lanes included', async () => {
    const waiting: (() => void)[] = [];
    const run = () => new Promise<void>((resolve) => waiting.push(resolve));
    table.register('slow', amHandler(run, { ordered: true }));
    await table.idle();
    for (let i = 0; i < 2; i += 1) table.dispatch(request('slow', RESPONSE_ACK), NO_BYTES, reply);
    let idle = false;
    void table.idle().then(() => {
      // The answers stood before anybody heard of it.
      idle = plans.length === 2;
    });
    waiting.shift()!();
    await settle();
    expect([idle, table.inFlight]).to.deep.equal([false, 1]);
    waiting.shift()!();
    await settle();
    expect([idle, table.inFlight]).to.deep.equal([true, 0]);
  });

  it('starts nothing once it is stopped, and answers only what had begun', async () => {
    let runs = 0;
    let letGo = () => {};
    const run = () => {
      runs += 1;
      return new Promise<void>((resolve) => {
        letGo = resolve;
      });
    };
    table.register('slow', amHandler(run, { ordered: true }));
    for (let i = 0; i < 3; i += 1) table.dispatch(request('slow', RESPONSE_ACK), NO_BYTES, reply);
    expect(table.stop()).to.equal(3);
    table.dispatch(request('slow', RESPONSE_ACK), NO_BYTES, reply);
    table.dispatch(request('unknown', RESPONSE_ACK), NO_BYTES, reply);
    letGo();
    await settle();
    expect(runs).to.equal(1);
    expect(plans).to.deep.equal([{ reply: 'ack' }]);
  });
});
