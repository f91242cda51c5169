// Puts the page together. `#run=N` in the address chooses the moment (from 1).
(() => {
  fillTables();
  const swatches = [['later', 'not run yet'], ['stored', 'held'], ['recomputed', 'held, computed again'], ['working', 'gradient held'],
                    ['accumulators', 'sum goes on'], ['gone', 'freed']];
  for (const [state, words] of swatches) {
    const svg = shape('svg', {width: 12, height: 12, 'aria-hidden': 'true'});
    svg.append(shape('circle', {class: 'node ' + state, cx: 6, cy: 6, r: 4.6}));
    $('node-key').append(element('li', {}, svg, words));
  }
  $('node-key').append(element('li', {}, 'above: forward, to the right; below: backward, to the left'));
  $('curve-section').hidden = !plan.trade_off.length && plan.workers.length > 0;
  function draw() {
    workers.draw();
    timeline.draw();
    arena.draw();
    curve.draw();
    moments.draw();
  }
  draw();
  const asked = () => { const m = /run=(\d+)/.exec(location.hash); return m ? m[1] - 1 : plan.peak_run; };
  moments.go(asked());
  addEventListener('hashchange', () => moments.go(asked()));
  let wait = null;
  addEventListener('resize', () => { clearTimeout(wait); wait = setTimeout(draw, 120); });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => arena.draw());
  document.querySelectorAll('input[name=scale]').forEach(input => input.addEventListener('change', () => {
    scale = input.value;
    timeline.draw();
    const run = moments.now;
    arena.draw();
    timeline.move(run);
  }));
})();
