// One request to the server, as an async iterator of rounds.

/** What went wrong, in the server's words. */
export class Refused extends Error {}

/** Yields {tokens: [{text, origin, logprob, top}], draft, depth, accepted, seconds, plain_seconds}, then {usage, speculation, finish}. */
export async function* rounds(messages, options, key, signal) {
  const body = { messages, stream: true, stream_options: { include_usage: true }, logprobs: true, top_logprobs: 3, ...options };
  const headers = { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  const response = await fetch("v1/chat/completions", { method: "POST", headers, body: JSON.stringify(body), signal });
  if (!response.ok) throw new Refused((await response.json()).error.message);
  for await (const event of events(response.body)) {
    if (event.error) throw new Refused(event.error.message);
    if (event.usage) yield { usage: event.usage, speculation: event.speculation };
    const choice = event.choices[0];
    if (!choice) continue;
    if (choice.finish_reason) yield { finish: choice.finish_reason };
    if (!event.speculation || !choice.delta) continue;
    const scores = choice.logprobs ? choice.logprobs.content : [];
    const tokens = event.speculation.tokens.map((token, i) => ({ ...token, logprob: scores[i]?.logprob, top: scores[i]?.top_logprobs ?? [] }));
    yield { ...event.speculation, tokens };
  }
}

/** Yields the JSON of each server-sent event. */
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (held + value).split("\n\n");
    held = parts.pop();
    for (const part of parts) {
      const data = part.replace(/^data: /, "");
      if (data !== "[DONE]") yield JSON.parse(data);
    }
  }
}
