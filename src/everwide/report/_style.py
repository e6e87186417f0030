"""How the page looks: one column, the colours of the reader's choice, nothing wider than the window."""

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fbfaf7; --card: #ffffff; --ink: #1b1e28; --muted: #5a6072; --rule: #dfe0e6;
  --blue: #1f5fbf; --orange: #b9530f; --green: #14795a; --grey: #757b8d;
  --tint: #eef3fb; --warn: #fdf3e3; --warn-edge: #d08a1d;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14161c; --card: #1b1e26; --ink: #e8e9ee; --muted: #a6abba; --rule: #343845;
    --blue: #82b1ff; --orange: #ffab73; --green: #6fd3ab; --grey: #9298a9;
    --tint: #1d2635; --warn: #2b2417; --warn-edge: #d9a441;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body {
  margin: 0; background: var(--paper); color: var(--ink); overflow-wrap: anywhere;
  font: 17px/1.6 ui-sans-serif, system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif;
  font-variant-numeric: tabular-nums;
}
main, header, footer { max-width: 46rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 3.5rem; }
.eyebrow { color: var(--blue); font-weight: 600; letter-spacing: .02em; margin: 0; font-size: .95rem; }
h1 { font-size: clamp(1.7rem, 5vw, 2.5rem); line-height: 1.15; letter-spacing: -.02em; margin: .4rem 0 .8rem; }
h2 { font-size: 1.5rem; line-height: 1.25; letter-spacing: -.01em; margin: 0 0 .35rem; }
.lead { color: var(--muted); font-size: 1.1rem; margin: 0 0 1.75rem; }
.question { color: var(--muted); font-size: 1.05rem; margin: 0 0 1.25rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(12.5rem, 1fr)); gap: .75rem; margin: 0;
  padding: 0; list-style: none; }
.tiles li { background: var(--card); border: 1px solid var(--rule); border-radius: 12px; padding: 1rem 1.1rem .9rem; }
.tiles .first { background: var(--tint); border-color: transparent; grid-column: span 2; }
.tiles .label { display: block; color: var(--muted); font-size: .85rem; line-height: 1.35; }
.tiles .value { display: block; font-size: 1.75rem; font-weight: 650; letter-spacing: -.02em; line-height: 1.3; }
.tiles .first .value { font-size: 2.6rem; color: var(--blue); line-height: 1.2; }
.tiles .note { display: block; font-size: .88rem; line-height: 1.4; color: var(--muted); }
nav { margin: 2rem 0 0; padding: 1rem 0 0; border-top: 1px solid var(--rule); font-size: .95rem; }
nav ol { margin: 0; padding: 0 0 0 1.8rem; columns: 18rem auto; }
nav li::marker { color: var(--grey); }
a { color: var(--blue); text-decoration: none; }
a:hover, a:focus-visible { text-decoration: underline; }
section { margin-top: 3.5rem; padding-top: 2rem; border-top: 1px solid var(--rule); scroll-margin-top: 1rem; }
dl { margin: 0; }
dl > div { display: grid; grid-template-columns: 11rem 1fr; gap: .1rem 1.25rem; padding: .8rem 0;
  border-bottom: 1px solid var(--rule); }
dl > div:last-child { border-bottom: 0; }
dt { color: var(--muted); font-size: .92rem; line-height: 1.45; }
dt b { display: block; color: var(--ink); font-size: 1.2rem; font-weight: 650; line-height: 1.3; }
dt b.long { font-size: 1rem; font-weight: 600; }
dd { margin: 0; line-height: 1.5; align-self: center; }
ul.warnings { list-style: none; margin: 1.1rem 0; padding: 0; }
ul.warnings li, .missing { background: var(--warn); border-left: 3px solid var(--warn-edge); border-radius: 0 8px 8px 0;
  padding: .65rem .95rem; margin: .5rem 0; font-size: .97rem; line-height: 1.5; }
.fine { background: none; color: var(--green); font-weight: 600; }
figure { margin: 1.5rem 0; padding: 1rem 1rem .8rem; background: var(--card); border: 1px solid var(--rule);
  border-radius: 12px; }
figure svg { display: block; width: 100%; max-width: 36rem; height: auto; margin: 0 auto; overflow: visible; }
figure svg * { stroke-linejoin: round; }
figure svg text { font-family: inherit !important; }
figcaption { color: var(--muted); font-size: .9rem; line-height: 1.45; margin-top: .6rem; text-align: center; }
details { margin: 1rem 0; }
summary { cursor: pointer; color: var(--blue); font-size: .95rem; }
.scroll { overflow-x: auto; margin: .5rem 0; overflow-wrap: normal; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; line-height: 1.4; }
th, td { padding: .42rem 1.2rem .42rem 0; text-align: left; border-bottom: 1px solid var(--rule); white-space: nowrap;
  max-width: 18rem; overflow: hidden; text-overflow: ellipsis; }
th { color: var(--muted); font-weight: 500; }
th.n, td.n { text-align: right; }
th:last-child, td:last-child { padding-right: .2rem; }
td.picture { padding: .25rem .8rem .25rem 0; width: 2.75rem; }
td.picture img { display: block; width: 40px; height: 40px; object-fit: contain; image-rendering: pixelated;
  border-radius: 4px; border: 1px solid var(--rule); }
.notes { color: var(--muted); font-size: .88rem; line-height: 1.5; margin: 1rem 0 0; }
.notes p { margin: .3rem 0; }
footer { color: var(--muted); font-size: .88rem; margin-top: 4rem; padding-top: 1.5rem; padding-bottom: 4rem; }
@media (max-width: 34rem) {
  body { font-size: 16px; }
  header { padding-top: 2rem; }
  dl > div { grid-template-columns: 1fr; }
  .tiles { grid-template-columns: 1fr 1fr; }
  .tiles .value { font-size: 1.45rem; }
  figure { padding: .75rem .25rem; margin-left: -.5rem; margin-right: -.5rem; }
  table { font-size: .86rem; }
  th, td { padding-right: .8rem; }
}
@media print {
  :root { --paper: #fff; --card: #fff; --ink: #000; --muted: #444; --rule: #ccc; --tint: #f3f3f3; --warn: #f6f6f6;
    --blue: #1f5fbf; --orange: #b9530f; --green: #14795a; --grey: #666; }
  body { font-size: 11pt; }
  nav { display: none; }
  section { break-inside: auto; margin-top: 1.5rem; padding-top: 1rem; }
  figure, .tiles li, dl > div, tr { break-inside: avoid; }
  .scroll { overflow: visible; }
}
"""
