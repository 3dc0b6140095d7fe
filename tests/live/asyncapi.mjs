// What @asyncapi/parser finds wrong with documents, for test_asyncapi.py.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const { Parser } = createRequire(import.meta.url)(`${process.argv[2]}/@asyncapi/parser`);
const parser = new Parser();
for await (const line of createInterface({ input: process.stdin })) {
  const { document, diagnostics } = await parser.parse(JSON.parse(line).text);
  const wrong = diagnostics.filter(({ severity }) => severity === 0).map(({ message, path }) => `${path.join("/")}: ${message}`);
  console.log(JSON.stringify({ wrong, channels: document?.channels().all().length ?? 0 }));
}
