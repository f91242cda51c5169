// The memory timeline of one step: bytes of each class at every kernel run, stacked.
const timeline = (() => {
  const host = $('timeline'), left = 84, right = 12, bottom = 26, height = 320;
  let width = 0, cursor = null, top = 40;
  const stack = ['state', 'accumulators', 'stored', 'recomputed', 'working', 'scratch'];
  const most = Math.max(plan.memory, plan.budget && plan.budget < 2 * plan.memory ? plan.budget : 0) * 1.04;
  const x = run => left + along(run) * (width - left - right);
  const y = bytes => top + (height - top - bottom) * (1 - bytes / most);

  function area(name, below) {
    const values = plan.timeline[name];
    let up = '', down = '', changed = false;
    for (let r = 0; r < runCount; ++r) {
      const high = below[r] + values[r];
      if (values[r]) changed = true;
      up += (r ? 'L' : 'M') + x(r).toFixed(1) + ' ' + y(high).toFixed(1) + 'H' + x(r + 1).toFixed(1);
      down = 'L' + x(r + 1).toFixed(1) + ' ' + y(below[r]).toFixed(1) + 'H' + x(r).toFixed(1) + down;
      below[r] = high;
    }
    return changed ? shape('path', {d: up + down + 'Z', class: name}) : null;
  }

  function draw() {
    width = Math.max(320, host.clientWidth);
    // Above the picture: what its lines are. There the words meet neither the areas nor one another.
    const lines = [['budget', plan.budget, 'budget'], ['arena-line', plan.memory, 'arena and allowance'], ['bound', plan.budget_bound, 'proven lower bound']]
      .filter(([, bytes]) => bytes && bytes <= most).map(([kind, bytes, text]) => ({kind, bytes, text: text + ' ' + bytesText(bytes)}));
    let at = left, row = 0;
    for (const line of lines) {
      const room = 28 + line.text.length * 6.6 + 22;
      if (at > left && at + room > width - right) at = left, ++row;
      line.at = at, line.row = row;
      at += room;
    }
    top = 28 + 16 * row;
    const svg = shape('svg', {width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', id: 'timeline-picture',
      'aria-label': `memory during one step: peak ${bytesText(plan.peak_live + plan.allowance)}, budget ` +
                    (plan.budget ? bytesText(plan.budget) : 'none')});
    for (const v of ticks(0, most, 5, true)) {
      svg.append(shape('line', {class: 'axis', x1: left, x2: width - right, y1: y(v), y2: y(v)}),
                 shape('text', {x: left - 8, y: y(v) + 4, 'text-anchor': 'end'}, tickText(v)));
    }
    const below = new Array(runCount).fill(plan.allowance);
    svg.append(shape('rect', {class: 'allowance', x: left, width: Math.max(0, width - right - left), y: y(plan.allowance),
                              height: y(0) - y(plan.allowance)}));
    for (const name of stack) {
      const path = area(name, below);
      if (path) svg.append(path);
    }
    const parts = [[0, 'before'], [plan.loop[0], 'forward'], [plan.turn, 'backward'], [plan.loop[1], 'after']];
    const ends = [plan.loop[0], plan.turn, plan.loop[1], runCount];
    parts.forEach(([from, word], n) => {
      if (from >= ends[n]) return;
      if (from > 0) svg.append(shape('line', {class: 'mark', x1: x(from), x2: x(from), y1: top, y2: y(0)}));
      const room = x(ends[n]) - x(from), text = n === 0 ? 'before the loop' : n === 3 ? 'after the loop' : word;
      if (room > 34) svg.append(shape('text', {x: (x(from) + x(ends[n])) / 2, y: height - 8, 'text-anchor': 'middle'},
                                      room > 90 ? text : word));
    });
    for (const {kind, bytes} of lines)
      svg.append(shape('line', {class: kind, x1: left, x2: width - right, y1: y(bytes), y2: y(bytes)}));
    for (const {kind, text, at, row} of lines)
      svg.append(shape('line', {class: kind, x1: at, x2: at + 22, y1: 10 + 16 * row, y2: 10 + 16 * row}),
                 shape('text', {class: 'strong', x: at + 28, y: 14 + 16 * row}, text));
    cursor = shape('line', {class: 'cursor', y1: top - 6, y2: y(0), id: 'cursor'});
    svg.append(cursor);
    svg.addEventListener('pointermove', event => {
      const run = runAt(event);
      if (event.buttons & 1) moments.go(run);
      tip(event, `run ${run + 1}, ${sectionOf(run)}: ${kernelOf(run).name}\n${bytesText(liveAt(run) + plan.allowance)} of the process`);
    });
    svg.addEventListener('pointerleave', event => tip(event, ''));
    svg.addEventListener('pointerdown', event => moments.go(runAt(event)));
    host.replaceChildren(svg);
  }
  function runAt(event) {
    const box = host.getBoundingClientRect();
    return runAlong(Math.min(1, Math.max(0, (event.clientX - box.left - left) / (width - left - right))));
  }
  function move(run) {
    const middle = ((x(run) + x(run + 1)) / 2).toFixed(1);
    cursor.setAttribute('x1', middle);
    cursor.setAttribute('x2', middle);
  }
  return {draw, move, x, get width() { return width; }, left, right};
})();
