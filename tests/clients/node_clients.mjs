// The clients of both vendors for Node.js, the AI SDK, ws and eventsource: node node_clients.mjs PLACES [CHECKS]
import { readFileSync } from 'node:fs';

import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import Anthropic from '@anthropic-ai/sdk';
import { embed, generateText, streamText } from 'ai';
import { EventSource } from 'eventsource';
import OpenAI, { toFile } from 'openai';
import OpenAI6 from 'openai-6';
import WebSocket from 'ws';

const places = JSON.parse(process.argv[2]);
const only = new Set(JSON.parse(process.argv[3] ?? '[]'));
const checks = [];
const HELLO = [{ role: 'user', content: 'hello' }];
const SCHEMA = { type: 'object', properties: { city: { type: 'string' } } };

function versionOf(name) {
  const path = new URL(`node_modules/${name}/package.json`, import.meta.url);
  return JSON.parse(readFileSync(path)).version;
}

function check(client, name, call) {
  checks.push({ client: `${client} ${versionOf(client)} (Node.js)`, name, call });
}

async function outcome(call, place) {
  try {
    return (await call(place)) ?? null;
  } catch (error) {
    const text = String(error.message);
    return {
      error: error.constructor.name,
      status: error.status ?? error.statusCode ?? null,
      'as asked': text.includes('as asked'),
      text: text.slice(0, 300),
    };
  }
}

async function collect(stream, textOf) {
  let text = '';
  for await (const each of stream) text += textOf(each) ?? '';
  return text;
}

for (const [client, Kind] of [
  ['openai', OpenAI],
  ['openai-6', OpenAI6],
]) {
  const of = (place, options = {}) =>
    new Kind({ baseURL: `${place.base}/v1`, apiKey: place.key, maxRetries: 0, ...options });
  const say = (place, content, options = {}) =>
    of(place).chat.completions.create({ model: place.model, messages: [{ role: 'user', content }], ...options });

  check(client, 'chat', async (place) => {
    const call = of(place).chat.completions.create({ model: place.model, messages: HELLO });
    const { data, response } = await call.withResponse();
    return [data, Boolean(data._request_id), response.headers.get('x-engine')];
  });
  check(client, 'chat stream', async (place) => {
    const stream = await say(place, 'hello', { stream: true, stream_options: { include_usage: true } });
    return collect(stream, (chunk) => chunk.choices[0]?.delta?.content ?? `|${chunk.usage?.total_tokens}`);
  });
  check(client, 'chat stream abandoned', async (place) => {
    let count = 0;
    for await (const _ of await say(place, 'pace:0.05', { stream: true })) if (++count === 3) break;
    return count;
  });
  check(client, 'tool', async (place) => {
    const tools = [{ type: 'function', function: { name: 'weather', parameters: SCHEMA } }];
    return (await say(place, 'hello', { tools })).choices[0].message.tool_calls[0].function;
  });
  check(client, 'run tools', async (place) => {
    const answers = { parse: JSON.parse, function: async (given) => `sunny in ${given.city}` };
    const tools = [{ type: 'function', function: { name: 'weather', parameters: SCHEMA, ...answers } }];
    const body = { model: place.model, messages: HELLO, stream: true, tools };
    return of(place).chat.completions.runTools(body).finalContent();
  });
  check(client, 'responses', async (place) => {
    const answer = await of(place).responses.create({ model: place.model, input: 'hello' });
    return answer.output_text;
  });
  check(client, 'responses stream', async (place) => {
    const stream = await of(place).responses.create({ model: place.model, input: 'hello', stream: true });
    return collect(stream, (event) => (event.type === 'response.output_text.delta' ? event.delta : ''));
  });
  check(client, 'responses stored', async (place) => {
    const { responses } = of(place);
    const first = await responses.create({ model: place.model, input: 'hello', store: true });
    const found = await responses.retrieve(first.id);
    const more = { model: place.model, input: 'more', previous_response_id: first.id };
    const second = await responses.create(more);
    await responses.delete(first.id);
    return [found.id === first.id, second.previous_response_id === first.id];
  });
  check(client, 'embeddings', async (place) => {
    const answer = await of(place).embeddings.create({ model: place.model, input: ['a', 'b'] });
    return answer.data.map((each) => each.embedding);
  });
  check(client, 'models', async (place) => {
    const { models } = of(place);
    const found = [];
    for await (const model of models.list()) found.push(model.id);
    return [found, (await models.retrieve(place.model)).id];
  });
  check(client, 'transcription', async (place) => {
    const file = await toFile(Buffer.alloc(100_000), 'Ünï söund.wav');
    return (await of(place).audio.transcriptions.create({ model: place.model, file })).text;
  });
  check(client, 'speech', async (place) => {
    const answer = await of(place).audio.speech.create({ model: place.model, voice: 'alloy', input: 'hello' });
    return (await answer.arrayBuffer()).byteLength;
  });
  check(client, 'error 400', (place) => say(place, 'status:400'));
  check(client, 'error 422', (place) => say(place, 'status:422'));
  check(client, 'wrong key', (place) =>
    of(place, { apiKey: 'sk-wrong' }).chat.completions.create({ model: place.model, messages: HELLO }),
  );
  check(client, 'unknown model', (place) =>
    of(place).chat.completions.create({ model: 'nothing', messages: HELLO }),
  );
  check(client, 'timeout', (place) =>
    of(place, { timeout: 500 }).chat.completions.create({
      model: place.model,
      messages: [{ role: 'user', content: 'sleep:3' }],
    }),
  );
}

const anthropic = '@anthropic-ai/sdk';
const claude = (place, options = {}) =>
  new Anthropic({ baseURL: place.base, apiKey: place.key, maxRetries: 0, ...options });
const message = (place, options = {}) => ({ model: place.model, max_tokens: 9, messages: HELLO, ...options });

check(anthropic, 'messages', async (place) => {
  const answer = await claude(place).messages.create(message(place));
  return [answer, Boolean(answer._request_id)];
});
check(anthropic, 'messages stream', async (place) => claude(place).messages.stream(message(place)).finalMessage());
check(anthropic, 'tool stream', async (place) => {
  const tools = [{ name: 'weather', input_schema: SCHEMA }];
  return (await claude(place).messages.stream(message(place, { tools })).finalMessage()).content;
});
check(anthropic, 'count tokens', (place) =>
  claude(place).messages.countTokens({ model: place.model, messages: HELLO }),
);
check(anthropic, 'models', async (place) => {
  const found = [];
  for await (const model of claude(place).models.list()) found.push(model.id);
  return found;
});
check(anthropic, 'authorization as bearer', async (place) => {
  const answer = await claude(place, { apiKey: null, authToken: place.key }).messages.create(message(place));
  return answer.content;
});
check(anthropic, 'wrong key', (place) => claude(place, { apiKey: 'wrong' }).messages.create(message(place)));
check(anthropic, 'unknown model', (place) => claude(place).messages.create(message(place, { model: 'nothing' })));

const compatible = (place) =>
  createOpenAICompatible({ name: 'engine', baseURL: `${place.base}/v1`, apiKey: place.key });

check('ai', 'generate text', async (place) => {
  const answer = await generateText({ model: compatible(place)(place.model), prompt: 'hello', maxRetries: 0 });
  return [answer.text, answer.finishReason];
});
check('ai', 'stream text', async (place) =>
  collect(streamText({ model: compatible(place)(place.model), prompt: 'hello' }).textStream, (text) => text),
);
check('ai', 'embed', async (place) => {
  const model = compatible(place).embeddingModel(place.model);
  return (await embed({ model, value: 'x' })).embedding;
});

function realtime(place, protocols, options) {
  const { promise, resolve, reject } = Promise.withResolvers();
  const url = `${place.base.replace('http', 'ws')}/v1/realtime?model=${place.model}&hello=1`;
  const socket = new WebSocket(url, protocols, options);
  let text = '';
  socket.on('open', () => socket.send(JSON.stringify({ type: 'response.create' })));
  socket.on('message', (data) => {
    const event = JSON.parse(data);
    text += event.delta ?? '';
    if (event.type === 'response.done') socket.close(1000);
  });
  socket.on('close', (code) => resolve([text, socket.protocol, code]));
  socket.on('error', reject);
  return promise;
}

check('ws', 'realtime with a header', (place) =>
  realtime(place, [], { headers: { Authorization: `Bearer ${place.key}` } }),
);
check('ws', 'realtime with the key in the protocols', (place) =>
  realtime(place, ['realtime', `openai-insecure-api-key.${place.key}`], {}),
);
check('ws', 'realtime with a wrong key', async (place) => {
  try {
    return await realtime(place, [], { headers: { Authorization: 'Bearer wrong' } });
  } catch (error) {
    return error.message;
  }
});
check('eventsource', 'stops at 204', (place) => {
  const { promise, resolve } = Promise.withResolvers();
  const authorized = { Authorization: `Bearer ${place.token}` };
  const seen = [];
  const source = new EventSource(`${place.app}/events`, {
    fetch: (url, init) => fetch(url, { ...init, headers: { ...init.headers, ...authorized } }),
  });
  // Its own timers do not keep Node.js running.
  const limit = setTimeout(() => resolve([seen, 'no end within ten seconds']), 10_000);
  source.addEventListener('message', (event) => seen.push(event.data));
  source.addEventListener('error', (event) => {
    if (source.readyState !== source.CLOSED) return;
    clearTimeout(limit);
    resolve([seen, event.code ?? null]);
  });
  return promise;
});

for (const { client, name, call } of checks) {
  if (only.size && !only.has(name)) continue;
  for (const place of places) {
    const found = await outcome(call, place);
    console.log(JSON.stringify({ client, check: name, place: place.name, outcome: found }));
  }
}
process.exit(0);
