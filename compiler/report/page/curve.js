// Memory against predicted time: the plans that no other beats, this one marked, named strategies as labelled points.
const curve = (() => {
  const host = $('curve'), left = 84, right = 24, top = 44, bottom = 44, height = 344;
  // Of each strategy the micro-batch that this budget would take, or else its smallest.
  const budget = plan.budget || Infinity;
  const chosen = [...new Set(plan.strategies.map(s => s.name))].map(name => {
    const all = plan.strategies.filter(s => s.name === name), fits = all.filter(s => s.bytes <= budget);
    const best = fits.length ? fits.reduce((a, b) => b.seconds < a.seconds ? b : a) : all.reduce((a, b) => b.bytes < a.bytes ? b : a);
    return {...best, fits: fits.length > 0};
  });
  const here = {bytes: plan.memory, seconds: plan.seconds};

  function draw() {
    const width = Math.max(320, host.clientWidth), points = plan.trade_off;
    const svg = shape('svg', {width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', id: 'curve-picture',
      'aria-label': `predicted seconds a step against memory, ${points.length} plans`});
    // What lies far beyond this plan is cut off: four times its memory, or the budget.
    const all = [...points, ...chosen, here];
    const cap = Math.max(4 * plan.memory, plan.budget || 0);
    const shown = all.filter(p => p.bytes <= cap);
    const least = Math.min(...shown.map(p => p.bytes), plan.budget_bound), most = Math.max(...shown.map(p => p.bytes), plan.budget || 0) * 1.02;
    const slow = Math.max(...shown.map(p => p.seconds)), fast = Math.min(...shown.map(p => p.seconds), plan.seconds_bound);
    const lo = Math.max(0, fast - .06 * (slow - fast)), hi = slow + .08 * (slow - fast) + 1e-12;
    const x = b => left + (width - left - right) * (Math.log(b) - Math.log(least * .97)) / (Math.log(most) - Math.log(least * .97));
    const y = s => top + (height - top - bottom) * (1 - (s - lo) / (hi - lo));
    for (const v of ticks(lo, hi, 5, false))
      svg.append(shape('line', {class: 'axis', x1: left, x2: width - right, y1: y(v), y2: y(v)}),
                 shape('text', {x: left - 8, y: y(v) + 4, 'text-anchor': 'end'}, secondsText(v)));
    // Round numbers of MiB; over a wide range, twice as much from tick to tick.
    const unit = 2 ** 20, marks = most / least < 4 ? ticks(least * .97 / unit, most / unit, 8, false).map(v => v * unit) : [];
    for (let v = 2 ** Math.floor(Math.log2(least * .97)); !(most / least < 4) && v < most; v *= 2) marks.push(v, ...(1.5 * v < most ? [1.5 * v] : []));
    for (const v of marks.filter(v => v >= least * .97))
      svg.append(shape('line', {class: 'axis', x1: x(v), x2: x(v), y1: top, y2: height - bottom}),
                 shape('text', {x: x(v), y: height - bottom + 16, 'text-anchor': 'middle'}, tickText(v)));
    svg.append(shape('text', {x: (left + width - right) / 2, y: height - 8, 'text-anchor': 'middle'}, 'memory of the process (logarithmic)'),
               shape('text', {x: left, y: 10}, 'predicted time of a step'));
    const vertical = (bytes, kind, text, at) => {
      if (!bytes || bytes > most) return;
      const end = x(bytes) > width - 200;
      svg.append(shape('line', {class: kind, x1: x(bytes), x2: x(bytes), y1: at + 4, y2: height - bottom}),
                 shape('text', {class: 'strong', x: x(bytes) + (end ? -5 : 5), y: at, 'text-anchor': end ? 'end' : 'start'}, text));
    };
    // Above the picture, each in a row of its own.
    vertical(plan.budget_bound, 'bound', 'proven lower bound ' + bytesText(plan.budget_bound), 24);
    vertical(plan.budget, 'budget', 'budget ' + bytesText(plan.budget || 0), 38);
    const line = points.filter(p => p.bytes <= most);
    let path = '';
    line.forEach((p, n) => path += n ? 'H' + x(p.bytes).toFixed(1) + 'V' + y(p.seconds).toFixed(1)
                                     : 'M' + x(p.bytes).toFixed(1) + ' ' + y(p.seconds).toFixed(1));
    if (line.length) svg.append(shape('path', {class: 'curve', d: path + 'H' + (width - right)}));
    const dot = (p, kind, radius, text) => {
      const c = shape('circle', {class: 'dot ' + kind, cx: x(p.bytes), cy: y(p.seconds), r: radius});
      c.addEventListener('pointermove', event => tip(event, text));
      c.addEventListener('pointerleave', event => tip(event, ''));
      svg.append(c);
    };
    const words = p => `${p.name}, micro-batch ${plan.batch / p.microbatch} \u00d7 ${p.microbatch}\n${bytesText(p.bytes)}, ${secondsText(p.seconds)} a step`;
    line.forEach(p => dot(p, '', 2.6, words(p)));
    // A label stands beside its point, where it meets neither another label nor a labelled point; if need be further off.
    const placed = [here, ...chosen].filter(p => p.bytes <= most).map(p => ({x: x(p.bytes) - 6, y: y(p.seconds) - 6, w: 12, h: 12}));
    // Nor one of the two vertical lines.
    for (const bytes of [plan.budget_bound, plan.budget])
      if (bytes && bytes <= most) placed.push({x: x(bytes) - 1, y: top, w: 2, h: height - bottom - top});
    const meets = (a, b) => a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
    const label = (p, text, strong) => {
      const w = text.length * (strong ? 6.8 : 6.2), px = x(p.bytes), py = y(p.seconds);
      let best = null;
      for (let far = 0; far < 6 && !best; ++far)
        for (const [dx, dy] of [[9, -13], [9, 1], [-9 - w, -13], [-9 - w, 1], [-w / 2, -22], [-w / 2, 9]]) {
          const box = {x: px + dx, y: py + dy + far * (dy < 0 ? -14 : 14), w, h: 13};
          if (box.x < left || box.x + w > width - 2 || box.y < top - 4 || box.y + 13 > height - bottom - 16) continue;
          if (!placed.some(q => meets(box, q))) { best = {...box, far}; break; }
        }
      if (!best) best = {x: px + 9, y: py - 13, w, h: 13, far: 0};
      placed.push(best);
      if (best.far) svg.append(shape('line', {class: 'leader', x1: px, y1: py, x2: best.x + (best.x > px ? 0 : w), y2: best.y + 8}));
      svg.append(shape('text', {class: strong ? 'strong halo' : 'halo', x: best.x, y: best.y + 10.5, 'font-weight': strong ? 650 : 400}, text));
    };
    // Points in one place have one label.
    const labels = [];
    const add = (p, text, strong) => {
      const same = labels.find(l => Math.hypot(x(l.p.bytes) - x(p.bytes), y(l.p.seconds) - y(p.seconds)) < 4);
      if (same) same.text += ', ' + text; else labels.push({p, text, strong});
    };
    add(here, 'this plan', true);
    for (const p of chosen.filter(p => p.bytes <= most)) {
      dot(p, 'named', 4, words(p) + (p.fits ? '' : '\nits smallest micro-batch; does not fit the budget'));
      add(p, p.name, false);
    }
    dot(here, 'this', 6, `this plan: ${plan.remat}\n${bytesText(here.bytes)}, ${secondsText(here.seconds)} a step`);
    for (const {p, text, strong} of labels) label(p, text, strong);
    host.replaceChildren(svg);
  }
  return {draw, chosen};
})();
