// The forward-pass example's arithmetic: the published counts, engine by engine, and its rules on random workloads.

import { expect } from 'chai';
import fc from 'fast-check';
import { TEXT } from '../../../examples/forward-pass/text.js';
import { faultOf, pieceAt, tokenise } from '../../../examples/forward-pass/tokens.js';
import {
  budgetOf,
  FRONTENDS,
  longestRequest,
  predict,
  predictEngine,
  requestsWhere,
  type Workload,
} from '../../../examples/forward-pass/workload.js';

const DEFAULTS: Workload = { engines: 2, requests: 24, maxBatch: 8, tokens: 40 };
const DEEP: Workload = { ...DEFAULTS, requests: 96, maxBatch: 32 };

describe('forward-pass example: the workload', () => {
  it('24 requests in batches of 8 are 476 tokens, 93 passes and 217 writes', () => {
    expect(predict(DEFAULTS)).to.deep.equal({ tokens: 476, passes: 93, writes: 217 });
    expect(predictEngine(0, DEFAULTS)).to.deep.equal({ tokens: 216, passes: 45, writes: 93 });
    expect(predictEngine(1, DEFAULTS)).to.deep.equal({ tokens: 260, passes: 48, writes: 124 });
  });

  it('96 requests in batches of 32 are 1,936 tokens, 97 passes and 360 writes', () => {
    expect(predict(DEEP)).to.deep.equal({ tokens: 1936, passes: 97, writes: 360 });
    expect(predictEngine(0, DEEP).writes).to.equal(176);
    expect(predictEngine(1, DEEP).writes).to.equal(184);
  });

  it('24 requests in batches of 4 are 351 writes', () => {
    expect(predict({ ...DEFAULTS, maxBatch: 4 }).writes).to.equal(351);
  });

  it('budgets run from 1 to the number of tokens', () => {
    expect([0, 1, 5, 6].map((request) => budgetOf(request, DEFAULTS))).to.deep.equal([1, 8, 36, 3]);
    expect(budgetOf(longestRequest(DEFAULTS), DEFAULTS)).to.equal(40);
  });

  it('any workload sends its whole budget, and writes between one and three times a pass', () => {
    const workloads = fc.record({
      engines: fc.integer({ min: 1, max: 5 }),
      requests: fc.integer({ min: 1, max: 60 }),
      maxBatch: fc.integer({ min: 1, max: 40 }),
      tokens: fc.integer({ min: 1, max: 50 }),
    });
    fc.assert(
      fc.property(workloads, (workload) => {
        const counts = predict(workload);
        const budgets = requestsWhere(workload, () => true).map((request) => budgetOf(request, workload));
        expect(counts.tokens).to.equal(budgets.reduce((total, budget) => total + budget, 0));
        const passWrites = counts.writes - workload.requests;
        expect(passWrites).to.be.within(counts.passes, counts.passes * FRONTENDS);
        expect(counts.passes).to.be.at.least(Math.max(...budgets));
      }),
    );
  });
});

describe('forward-pass example: the tokens', () => {
  const pieces = tokenise();

  it('joined, the tokens are the text', () => {
    expect(pieces.join('')).to.equal(TEXT);
    expect(pieces.length).to.be.greaterThan(300);
  });

  it('a request wraps at the end of the text', () => {
    expect(pieceAt(pieces, 0, pieces.length + 5)).to.equal(pieces[5]);
    expect(pieceAt(pieces, 1, 0)).to.equal(pieceAt(pieces, 0, 37));
  });

  it('only the token that belongs in a place passes', () => {
    const text = pieceAt(pieces, 3, 7);
    expect(faultOf({ request: 3, position: 7, text }, 3, 7, pieces)).to.equal(undefined);
    expect(faultOf({ request: 4, position: 7, text }, 3, 7, pieces)).to.include('a token of request 4');
    expect(faultOf({ request: 3, position: 8, text }, 3, 7, pieces)).to.include('position 8 where 7 was due');
    expect(faultOf({ request: 3, position: 7, text: `${text}!` }, 3, 7, pieces)).to.include('reads');
  });
});
