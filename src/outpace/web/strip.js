// Figures of one answer while it grows.

const at = (id) => document.getElementById(id);

export class Strip {
  constructor() {
    this.begun = null;
    this.tokens = this.steps = this.drafted = this.accepted = this.plain = 0;
    this.reached = [];
    this.kept = [];
    this.counts = { accepted: 0, correction: 0, bonus: 0, plain: 0 };
  }

  /** Counts a round that has just arrived. */
  add(round) {
    const now = performance.now() / 1000;
    this.begun ??= now - round.seconds.draft - round.seconds.score - round.seconds.verify;
    this.ended = now;
    this.steps += 1;
    this.tokens += round.tokens.length;
    this.plain += round.plain_seconds * round.tokens.length;
    this.drafted += round.draft.length;
    this.accepted += round.accepted;
    for (let i = 0; i < round.depth; i++) this.reached[i] = (this.reached[i] ?? 0) + 1;
    for (let i = 0; i < round.accepted; i++) this.kept[i] = (this.kept[i] ?? 0) + 1;
    for (const token of round.tokens) this.counts[token.origin] += 1;
    this.last = round.draft.length;
  }

  get seconds() { return this.begun === null ? 0 : this.ended - this.begun; }

  /** Writes the figures into the page. */
  show() {
    const seconds = this.seconds;
    at("rate").textContent = seconds ? Math.round(this.tokens / seconds) : "-";
    at("speed-up").textContent = this.plain && seconds ? `${(this.plain / seconds).toFixed(2)} times` : "-";
    at("per-step").textContent = this.steps ? (this.tokens / this.steps).toFixed(2) : "-";
    at("acceptance").textContent = this.drafted ? `${this.accepted} of ${this.drafted}` : "nothing drafted";
    at("length").textContent = this.steps ? `${this.last} tokens` : "-";
    const shares = this.reached.map((count, i) => (this.kept[i] ?? 0) / count);
    const bars = at("positions");
    bars.replaceChildren(...shares.map((share) => {
      const bar = document.createElement("i");
      bar.style.height = `${Math.round(100 * share)}%`;
      return bar;
    }));
    const words = shares.map((share, i) => `position ${i + 1}: ${Math.round(100 * share)} %`);
    bars.setAttribute("aria-label", words.join(", ") || "nothing drafted yet");
    bars.title = words.join("\n");
  }
}
