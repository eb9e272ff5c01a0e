"""How the page looks: one style sheet for light and dark, screens, telephones and paper."""

STYLE = """
:root {
  color-scheme: light dark;
  --ground: #fbfbfa; --card: #ffffff; --ink: #1c2024; --faint: #6a7178; --rule: #e1e4e6;
  --accent: #2563b8; --second: #1f9d78; --third: #d98a1f; --plain: #98a1ab; --shade: 37, 99, 184;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #14171a; --card: #1b1f23; --ink: #e6e8ea; --faint: #98a1a9; --rule: #31373d;
    --accent: #6ba4f0; --second: #43c49b; --third: #eba94b; --plain: #7f8993; --shade: 107, 164, 240;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", sans-serif;
}
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
.eyebrow { margin: 0; color: var(--faint); font-size: .85rem; letter-spacing: .02em; }
h1 { margin: .35rem 0 1rem; font-size: 1.65rem; line-height: 1.32; font-weight: 600; text-wrap: balance; }
h2 { margin: 3rem 0 .35rem; font-size: 1.15rem; font-weight: 600; }
h3 { margin: 0 0 .3rem; font-size: .95rem; font-weight: 600; }
p { margin: 0 0 .9rem; max-width: 46rem; }
.faint { color: var(--faint); font-size: .92rem; }
.warning { border-left: 3px solid var(--third); padding-left: .8rem; margin-top: 1rem; }
.tiles {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(8rem, 1fr)); gap: .75rem; margin: 1.6rem 0 0;
}
.tile, .card { background: var(--card); border: 1px solid var(--rule); border-radius: 8px; }
.tile { padding: .7rem .9rem; }
.tile b { display: block; white-space: nowrap; font-size: 1.4rem; font-weight: 600; line-height: 1.3; }
.tile span { color: var(--faint); font-size: .82rem; }
.card { padding: 1rem; margin: .8rem 0 0; overflow-x: auto; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: .8rem; }
svg { display: block; width: 100%; height: auto; }
.pair svg { max-width: 30rem; }
svg text { font-family: inherit !important; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .8rem .3rem 0; text-align: left; vertical-align: top; }
th, td { border-bottom: 1px solid var(--rule); }
tr:last-child > * { border-bottom: 0; }
th { font-weight: 500; color: var(--faint); }
td.number, th.number { text-align: right; }
.confusion th, .confusion td { border: 0; padding: .28rem .5rem; text-align: right; min-width: 2.3rem; }
.confusion td { border-radius: 3px; }
.confusion td.right { outline: 1px solid var(--rule); outline-offset: -1px; }
.confusion th { white-space: nowrap; }
.samples {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(8.6rem, 1fr)); gap: .75rem;
  margin-top: .8rem;
}
.sample { margin: 0; padding: .6rem; font-size: .84rem; line-height: 1.4; overflow-wrap: anywhere; }
.sample img {
  display: block; width: 100%; aspect-ratio: 1; object-fit: contain; image-rendering: pixelated;
  border-radius: 4px; background: #000; margin-bottom: .5rem;
}
.sample b { font-weight: 600; font-size: .95rem; }
details { margin-top: 3rem; }
summary { cursor: pointer; font-weight: 600; }
pre { overflow-x: auto; font-size: .84rem; line-height: 1.5; }
@media print { details[open] pre { white-space: pre-wrap; } .card, .tile { break-inside: avoid; } }
"""
