// Answers of a mock provider, in the wire format of each provider.

const event = (value, name) => `${name ? `event: ${name}\n` : ""}data: ${JSON.stringify(value)}\n\n`;
const typed = (events) => events.map((value) => event(value, value.type)).join("");

/** An answer in each wire format: an optional thought, an optional text, and calls; `n` makes its ids unique. */
export const formats = {
  chat({ thought, text, calls = [] }, n) {
    const chunk = (delta, reason = null) =>
      event({ id: `chatcmpl-${n}`, object: "chat.completion.chunk", created: 1, model: "m",
        choices: [{ index: 0, delta, finish_reason: reason }] });
    const pieces = [];
    if (thought) pieces.push(chunk({ role: "assistant", reasoning_content: thought }));
    if (text) pieces.push(chunk({ role: "assistant", content: text }));
    calls.forEach(([name, input], index) => pieces.push(chunk({ tool_calls: [
      { index, id: `call_${n}_${index}`, type: "function", function: { name, arguments: JSON.stringify(input) } }] })));
    return `${pieces.join("")}${chunk({}, calls.length ? "tool_calls" : "stop")}data: [DONE]\n\n`;
  },
  messages({ thought, text, calls = [] }, n) {
    const blocks = [];
    if (thought) blocks.push([{ type: "thinking", thinking: "", signature: "" },
      { type: "thinking_delta", thinking: thought }, { type: "signature_delta", signature: `c2ln${n}` }]);
    if (text) blocks.push([{ type: "text", text: "" }, { type: "text_delta", text }]);
    calls.forEach(([name, input], index) => blocks.push([{ type: "tool_use", id: `toolu_${n}_${index}`, name, input: {} },
      { type: "input_json_delta", partial_json: JSON.stringify(input) }]));
    const usage = { input_tokens: 9, output_tokens: 9 };
    const events = [{ type: "message_start", message: { id: `msg_${n}`, type: "message", role: "assistant", content: [], usage } }];
    blocks.forEach(([content_block, ...deltas], index) => {
      events.push({ type: "content_block_start", index, content_block });
      deltas.forEach((delta) => events.push({ type: "content_block_delta", index, delta }));
      events.push({ type: "content_block_stop", index });
    });
    events.push({ type: "message_delta", delta: { stop_reason: calls.length ? "tool_use" : "end_turn" }, usage });
    events.push({ type: "message_stop" });
    return typed(events);
  },
  responses({ thought, text, calls = [] }, n) {
    const items = [];
    if (thought) items.push({ type: "reasoning", id: `rs_${n}`, encrypted_content: "ENC",
      summary: [{ type: "summary_text", text: thought }] });
    if (text) items.push({ type: "message", id: `msg_${n}`, role: "assistant", status: "completed",
      content: [{ type: "output_text", text, annotations: [] }] });
    calls.forEach(([name, input], index) => items.push({ type: "function_call", id: `fc_${n}_${index}`, name,
      call_id: `call_${n}_${index}`, arguments: JSON.stringify(input), status: "completed" }));
    const events = items.flatMap((item, output_index) => [
      { type: "response.output_item.added", output_index, item: { ...item, content: [], arguments: "" } },
      { type: "response.output_item.done", output_index, item }]);
    const usage = { input_tokens: 9, output_tokens: 9, total_tokens: 18 };
    events.push({ type: "response.completed", response: { id: `resp_${n}`, status: "completed", output: items, usage } });
    return typed(events);
  },
  gemini({ thought, text, calls = [] }, n) {
    const parts = [];
    if (thought) parts.push({ text: thought, thought: true });
    if (text) parts.push({ text });
    calls.forEach(([name, args], index) =>
      parts.push({ functionCall: { id: `fn_${n}_${index}`, name, args }, ...(index === 0 && { thoughtSignature: "c2ln" }) }));
    return event({ candidates: [{ index: 0, content: { role: "model", parts }, finishReason: "STOP" }],
      usageMetadata: { promptTokenCount: 9, candidatesTokenCount: 9, totalTokenCount: 18 } });
  },
};
