import { expect } from 'chai';
import { VeloError } from '../../../lib/errors.js';
import type { ReplyPlan } from '../../../lib/messenger/dispatch-plan.js';
import { type DispatchRequest, HandlerTable, OVERFLOW_TEXT } from '../../../lib/messenger/handler-table.js';
import { amHandler, typedUnary, unaryHandler } from '../../../lib/messenger/handlers.js';
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
      amHandler(() => new Promise(() => {}), { ordered: true, maxQueueDepth: 1 }),
    );
    for (let i = 0; i < 3; i += 1) table.dispatch(request('full', RESPONSE_ACK), NO_BYTES, reply);
    table.dispatch(request('full', RESPONSE_NONE), NO_BYTES, reply);
    await settle();
    expect(plans).to.deep.equal([{ reply: 'nack', text: 'Handler failed: ordered lane queue full' }]);
    expect(table.ordered.counts.rejected).to.equal(2);
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
    expect(seen).to.have.members(['x starts with 0 bytes', 'x 1 ok ack true', 'y 0 unknownHandler none true']);
    expect(plans).to.deep.equal([{ reply: 'ack' }]);
    expect(table.observerFailures).to.equal(3);
  });
});
