// The bodies of requests, in the types of the SDKs of each maker.

import type { MessageCreateParamsStreaming } from "@anthropic-ai/sdk/resources/messages/messages";
import type {
  Content,
  GenerationConfig,
  SafetySetting,
  Tool,
  ToolConfig,
} from "@google/genai";
import type {
  ChatCompletionAssistantMessageParam,
  ChatCompletionCreateParamsStreaming,
  ChatCompletionMessageParam,
} from "openai/resources/chat/completions/completions";
import type {
  ResponseCreateParamsStreaming,
  ResponseInputItem,
  ResponseOutputRefusal,
  ResponseOutputText,
} from "openai/resources/responses/responses";

export type Messages = MessageCreateParamsStreaming;

// The SDK has no type for a message of the model without an id, which the API takes from other clients too.
type Unnamed = { type: "message"; role: "assistant"; content: Array<ResponseOutputText | ResponseOutputRefusal> };
export type Responses = Omit<ResponseCreateParamsStreaming, "input"> & {
  input: Array<ResponseInputItem | Unnamed>;
};

// Servers that send reasoning in this field expect it back in the same one.
type Reasoned = ChatCompletionAssistantMessageParam & { reasoning_content?: string };
export type Chat = Omit<ChatCompletionCreateParamsStreaming, "messages"> & {
  messages: Array<ChatCompletionMessageParam | Reasoned>;
};

// The SDK converts its own form to this one. Enumerations are their values, which the API accepts in lower case too;
// integers, which are strings in the SDK, are numbers as well.
type Counts = "minItems" | "maxItems" | "minLength" | "maxLength" | "minProperties" | "maxProperties";
type Json<T> = T extends string
  ? string extends T
    ? string
    : `${T}` | Lowercase<`${T}`>
  : T extends object
    ? { [K in keyof T]: K extends Counts ? number | string : Json<T[K]> }
    : T;
export type Gemini = Json<{
  contents: Content[];
  systemInstruction?: Content;
  tools?: Tool[];
  toolConfig?: ToolConfig;
  generationConfig?: GenerationConfig;
  safetySettings?: SafetySetting[];
}>;
