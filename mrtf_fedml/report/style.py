"""How the page looks: one style sheet for light and dark, screens, telephones and paper.

Charts are laid out by the browser: their text keeps its size, their lines stretch, and what fits only a wide chart
(class `more`) is shown by the width that the chart itself has.
"""

STYLE = """
:root {
  color-scheme: light dark;
  --ground: #f6f6f3; --card: #ffffff; --ink: #1c2024; --faint: #646b72; --rule: #e2e4e5; --alarm: #fdf4e3;
  --c0: #2563b8; --c1: #1f9d78; --c2: #d98a1f; --c3: #b8477f; --c4: #8a5fd0;
  --c5: #3b9cc4; --c6: #cf5330; --c7: #7f8a22; --c8: #8c6a4f; --c9: #5b6f8f;
  --plain: #98a1ab; --shade: 37, 99, 184; --light: 42%;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #121518; --card: #1a1e22; --ink: #e6e8ea; --faint: #9ba4ac; --rule: #2f353b; --alarm: #2a2417;
    --c0: #6ba4f0; --c1: #43c49b; --c2: #eba94b; --c3: #e681b3; --c4: #b39af2;
    --c5: #74c7e8; --c6: #f0855f; --c7: #bfca55; --c8: #c79f80; --c9: #9db2d4;
    --plain: #848e98; --shade: 107, 164, 240; --light: 66%;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body {
  margin: 0; background: var(--ground); color: var(--ink); overflow-wrap: break-word;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", sans-serif;
}
main { max-width: 62rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
.eyebrow { margin: 0; color: var(--faint); font-size: .85rem; letter-spacing: .02em; }
h1 { margin: .35rem 0 1rem; font-size: 1.65rem; line-height: 1.32; font-weight: 600; text-wrap: balance; }
h2 { margin: 3rem 0 .35rem; font-size: 1.2rem; font-weight: 600; scroll-margin-top: 1rem; }
h3 { margin: 0 0 .2rem; font-size: .95rem; font-weight: 600; }
p { margin: 0 0 .9rem; max-width: 46rem; }
.faint { color: var(--faint); font-size: .92rem; }
.card > .faint { font-size: .86rem; line-height: 1.45; }
.card + .faint, nav + .faint { margin-top: .9rem; }
.notes { margin-top: 1rem; } .notes p { margin-bottom: .35rem; }
.warnings { margin: 1rem 0; padding: .75rem 1rem; border-left: 4px solid var(--c2); border-radius: 4px;
  background: var(--alarm); }
code { font-size: .92em; padding: 0 .2em; border-radius: 3px; background: var(--rule); }
.warnings p { margin: 0; } .warnings p + p { margin-top: .5rem; }
nav { display: flex; flex-wrap: wrap; gap: .4rem; margin: 1.2rem 0 0; font-size: .86rem; }
nav a { color: var(--c0); text-decoration: none; padding: .2rem .7rem; border: 1px solid var(--rule);
  border-radius: 99px; background: var(--card); }
nav a:hover { border-color: var(--c0); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8rem, 1fr)); gap: .75rem; margin: 1.6rem 0 0; }
.tile, .card { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; min-width: 0; }
.tile { padding: .7rem .9rem; }
.tile b { display: block; white-space: nowrap; font-size: 1.4rem; font-weight: 600; line-height: 1.3; }
.tile span { display: block; color: var(--faint); font-size: .82rem; line-height: 1.35; }
.card { padding: 1rem; margin: .8rem 0 0; }
.pair, .three { display: grid; gap: .8rem; margin-top: .8rem; }
.pair { grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); }
.three { grid-template-columns: repeat(auto-fit, minmax(min(100%, 17rem), 1fr)); }
.pair > .card, .three > .card { margin: 0; }
details { margin-top: 1rem; }
summary { cursor: pointer; font-weight: 600; }
pre span { display: inline-block; max-width: 100%; }
pre { margin: .4rem 0; white-space: pre-wrap; overflow-wrap: anywhere; font-size: .84rem; line-height: 1.5; }
"""

_COLOURS = "".join(f".c{number} {{ --c: var(--c{number}); }}\n" for number in range(10))

STYLE += f"""
{_COLOURS}.plain {{ --c: var(--plain); }}
"""

STYLE += """
.chart { container-type: inline-size; margin: .5rem 0 0; --height: 11rem; }
.chart.tall { --height: 15rem; }
.legend { display: flex; flex-wrap: wrap; gap: .15rem 1.1rem; margin: 0 0 .6rem; font-size: .82rem;
  line-height: 1.5; color: var(--faint); }
.legend i { display: inline-block; width: 1.1rem; height: 0; margin-right: .4rem; vertical-align: middle;
  border-top: 3px solid var(--c); border-radius: 2px; }
.legend i.dashed { border-top-style: dotted; }
.legend b { font-weight: 600; color: var(--ink); font-variant-numeric: tabular-nums; }
.frame { display: grid; grid-template-columns: auto minmax(0, 1fr); font-size: .74rem; line-height: 1;
  color: var(--faint); font-variant-numeric: tabular-nums; }
.ys, .xs { position: relative; }
.ys { height: var(--height); text-align: right; padding-right: .5rem; }
.ys span { position: absolute; right: .5rem; transform: translateY(-50%); white-space: nowrap; }
.ys b { visibility: hidden; font-weight: 400; white-space: nowrap; }
.xs { grid-column: 2; height: 1.2rem; margin-top: .4rem; }
.xs span { position: absolute; transform: translateX(-50%); white-space: nowrap; }
.unit { grid-column: 2; text-align: center; padding-top: .1rem; }
.up { margin: 0 0 .55rem; font-size: .74rem; line-height: 1; color: var(--faint); }
.area { position: relative; height: var(--height); }
.area svg { display: block; width: 100%; height: 100%; overflow: visible; }
.area path { vector-effect: non-scaling-stroke; fill: none; stroke-linecap: round; stroke-linejoin: round; }
.area .grid { stroke: var(--rule); stroke-width: 1; }
.area .line { stroke: var(--c); stroke-width: 2; }
.area .dashed { stroke-dasharray: 1 5; }
.area .dots { stroke: var(--c); stroke-width: 6; }
.area .band { fill: var(--c); opacity: .16; }
.area .fill { fill: var(--c); stroke: none; }
.area .fill.apart { stroke: var(--card); stroke-width: 1.5; }
.area .mark { stroke: var(--faint); stroke-width: 1; stroke-dasharray: 2 4; }
.chart:has(.note) .frame { margin-top: 1.4rem; }
.area .note { position: absolute; top: -1.1rem; padding: 0 .15rem; transform: translateX(-100%); white-space: nowrap;
  font-size: .7rem; color: var(--faint); }
.area .note.after { transform: none; }
.more { display: none; }
@container (min-width: 24rem) { .more { display: inline; } }
@container (min-width: 34rem) { .chart.tall .frame { --height: 19rem; } }

.rows { display: grid; grid-template-columns: fit-content(9rem) minmax(3rem, 1fr) auto; gap: .3rem .7rem;
  align-items: center; margin-top: .6rem; font-size: .84rem; line-height: 1.3; }
.rows span { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; color: var(--faint); }
.rows div { height: .8rem; border-radius: 3px; background: color-mix(in srgb, var(--rule) 55%, transparent); }
.rows i { display: block; height: 100%; border-radius: 3px; background: var(--c, var(--c0)); }
.rows b { font-weight: 500; text-align: right; font-variant-numeric: tabular-nums; }
@media (min-width: 45rem) {
  .rows.many { columns: 2; column-gap: 2rem; display: block; }
  .rows.many > p { break-inside: avoid; }
}
.rows.many { display: block; }
.rows.many > p { display: grid; grid-template-columns: 7rem minmax(3rem, 1fr) 3.4rem; gap: .6rem; align-items: center;
  margin: 0 0 .3rem; max-width: none; }

.map { position: relative; max-width: 40rem; margin: .5rem auto 0; aspect-ratio: 1; container-type: inline-size; }
.map svg { display: block; width: 100%; height: 100%; overflow: visible; }
.map path { vector-effect: non-scaling-stroke; fill: none; stroke-linecap: round; stroke-width: 5; stroke: var(--c);
  opacity: .8; }
.map .ring { stroke: var(--ink); stroke-width: 12; opacity: 1; }
.map .hole { stroke: var(--card); stroke-width: 9; opacity: 1; }
.map span { position: absolute; transform: translate(-50%, -50%); padding: .05rem .4rem; border-radius: 99px;
  font-size: .74rem; font-weight: 600; line-height: 1.4; white-space: nowrap; color: var(--ink);
  background: var(--card); border: 2px solid var(--c); min-width: .8rem; min-height: .8rem; }
.map span.bare { padding: 0; border-width: 3px; }
.map em { position: absolute; left: 50%; bottom: 100%; font-style: normal;
  text-shadow: 0 0 2px var(--card), 0 0 2px var(--card), 0 0 4px var(--card), 0 0 4px var(--card); }

.blocks { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, var(--block)), 1fr));
  gap: 1rem 1.2rem; margin-top: .6rem; }
.blocks svg { display: block; width: 100%; max-width: calc(1.35 * var(--block)); height: auto; }
.blocks:has(svg:only-child) { display: block; }
.blocks svg:only-child { max-width: calc(1.8 * var(--block)); }
.blocks path { fill: none; stroke: var(--c0); stroke-linecap: round; }
.blocks .grid { stroke: var(--rule); }
.blocks text { font: 11px system-ui, sans-serif; fill: var(--faint); }

.scroll { overflow-x: auto; border-radius: 4px; background:
  linear-gradient(to right, var(--card) 40%, transparent) 0 0 / 3rem 100% no-repeat local,
  linear-gradient(to left, var(--card) 40%, transparent) 100% 0 / 3rem 100% no-repeat local,
  linear-gradient(to right, rgba(110, 120, 130, .38), transparent) 0 0 / .9rem 100% no-repeat scroll,
  linear-gradient(to left, rgba(110, 120, 130, .38), transparent) 100% 0 / .9rem 100% no-repeat scroll; }
.scroll::-webkit-scrollbar { height: 9px; }
.scroll::-webkit-scrollbar-track { background: color-mix(in srgb, var(--rule) 60%, transparent); border-radius: 9px; }
.scroll::-webkit-scrollbar-thumb { background: var(--plain); border-radius: 9px; }
@supports not selector(::-webkit-scrollbar) { .scroll { scrollbar-color: var(--plain) var(--rule); } }
.scroll:focus-visible, a:focus-visible, summary:focus-visible { outline: 2px solid var(--c0); outline-offset: 2px; }
/* A figure for print, black on white: its paper is the card's, by day and by night, and it scrolls where it would be
   too small to read. */
.figure { display: block; width: 100%; min-width: 46rem; height: auto; mix-blend-mode: multiply; }
@media (prefers-color-scheme: dark) {
  .figure { filter: invert(1) hue-rotate(180deg); mix-blend-mode: screen; }
}
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem 1rem .35rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--rule); }
tr:last-child > * { border-bottom: 0; }
th { font-weight: 500; color: var(--faint); }
td.number, th.number { text-align: right; }
td { max-width: 26rem; }
.first th:first-child, .first td:first-child { position: sticky; left: 0; background: var(--card); }
.columns th, .columns td { white-space: nowrap; }
.columns th + th { white-space: normal; max-width: 14rem; }
.columns.prose td { white-space: normal; min-width: 4rem; }
.words { table-layout: auto; width: 100%; } .words th { width: 34%; } .words td { overflow-wrap: anywhere; }
.confusion th, .confusion td { border: 0; padding: .28rem .5rem; text-align: right; min-width: 2.3rem; }
.confusion td { border-radius: 3px; }
.confusion td.right { outline: 1px solid var(--rule); outline-offset: -1px; }
.confusion th { white-space: nowrap; }
.confusion.runs th { white-space: normal; vertical-align: bottom; max-width: 11rem; }
.confusion.runs th:first-child { min-width: 6rem; vertical-align: middle; }
.pair .samples { grid-template-columns: repeat(3, minmax(0, 1fr)); }
.pair .samples .sample { padding: .4rem; font-size: .8rem; overflow-wrap: anywhere; }
.samples { display: grid; grid-template-columns: repeat(auto-fill, minmax(8.6rem, 1fr)); gap: .75rem;
  margin-top: .8rem; }
.sample { margin: 0; padding: .6rem; font-size: .84rem; line-height: 1.4; overflow-wrap: anywhere; }
.sample img { display: block; width: 100%; aspect-ratio: 1; object-fit: contain; image-rendering: pixelated;
  border-radius: 6px; background: #000; margin-bottom: .5rem; }
.sample b { font-weight: 600; font-size: .95rem; }
@media (max-width: 40rem) {
  main { padding: 1.4rem 1rem 3rem; }
  h1 { font-size: 1.3rem; } h2 { margin-top: 2.3rem; }
  .card { padding: .85rem .75rem; }
  .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: .6rem; }
  .tile b { font-size: 1.25rem; } .tile:last-child:nth-child(odd) { grid-column: 1 / -1; }
  .columns.first th:first-child, .columns.first td:first-child { white-space: normal; overflow-wrap: anywhere;
    min-width: 6rem; max-width: 10rem; }
  .confusion th, .confusion td { padding: .28rem .3rem; min-width: 1.75rem; }
  .confusion.runs th { max-width: 7rem; }
  .columns th, .columns td { padding-right: .7rem; }
  .samples { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .map path { stroke-width: 4; } .map .ring { stroke-width: 10; } .map .hole { stroke-width: 7; }
}
@media print {
  .card, .tile { break-inside: avoid; } nav { display: none; }
}
"""
