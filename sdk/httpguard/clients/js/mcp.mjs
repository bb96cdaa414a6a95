// The official MCP client, with its defaults. It connects to a command or a URL,
// and stays connected.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

let client;

export async function call(ask, said) {
  switch (ask.do) {
    case "connect":
      client = new Client({ name: "clients", version: "1" });
      await client.connect(
        ask.url
          ? new StreamableHTTPClientTransport(new URL(ask.url))
          : new StdioClientTransport({ command: ask.command[0], args: ask.command.slice(1), stderr: "ignore" }),
      );
      return;
    case "list":
      said.tools = (await client.listTools()).tools.map((t) => t.name);
      return;
    case "call":
      said.result = await client.callTool({ name: ask.tool, arguments: ask.arguments });
      return;
    case "close":
      await client.close();
  }
}
