// The budget of one peer that all lanes share, under every schedule: never more than the budget is held, what was refused or let go of
// leaves nothing behind, and a dead lane's bytes are forgotten without touching those of the living. And the bugs that break it.

import * as bugs from './budget-mutants.js';
import {
  type BudgetParts,
  burialScenario,
  sharedBudgetScenario,
  SHIPPED_BUDGET as shipped,
} from './budget-scenarios.js';
import { finds, holds } from './expectations.js';

const EVERY_ACCESS_DEEP = { preemptions: 3, points: 'all' } as const;
const EVERY_ACCESS = { preemptions: 2, points: 'all' } as const;
const OPTIONS = { preemptions: 2, points: 'atomic' } as const;

describe('shared byte budget under every schedule', () => {
  holds('AL-22 two lanes never hold more than the budget', sharedBudgetScenario(shipped), EVERY_ACCESS_DEEP);
  for (const death of ['holding', 'trying'] as const)
    holds(`a lane that dies ${death} is forgotten, the others are not`, burialScenario(death, shipped), EVERY_ACCESS);
  const late = burialScenario('holding', shipped, true);
  holds('what a buried lane still gives back is nobody else’s', late, EVERY_ACCESS);
});

describe('planted bugs are found: shared byte budget', () => {
  const shared = (bug: Partial<BudgetParts>) => sharedBudgetScenario({ ...shipped, ...bug });
  const burial = (bug: Partial<BudgetParts>) => burialScenario('holding', { ...shipped, ...bug });
  const above = /bytes are held of 10/;
  finds('a refused try that is not undone', 'failure', /the row says/, shared({ held: bugs.NoUndo }), OPTIONS);
  finds('a look before the add', 'failure', above, shared({ held: bugs.LookBeforeAdd }), OPTIONS);
  finds('a lane that looks at its own bytes only', 'failure', above, shared({ held: bugs.OwnBytesOnly }), OPTIONS);
  finds(
    'a burial that forgets',
    'failure',
    /the row says|nobody may hold/,
    burial({ bury: bugs.forgetToBury }),
    OPTIONS,
  );
  finds('a burial of all lanes', 'failure', /the row says/, burial({ bury: bugs.buryEverybody }), OPTIONS);
  finds('a burial that takes off too much', 'failure', /the row says/, burial({ bury: bugs.burySum }), OPTIONS);
  const late = burialScenario('holding', { ...shipped, held: bugs.TrustingRelease }, true);
  finds('a release that trusts its caller', 'failure', /the row says|nobody may hold/, late, OPTIONS);
});
