// A generated client for TypeScript. API_URL and API_KEY say where and who.
//   npm install openapi-fetch openapi-typescript typescript @types/node
//   npx openapi-typescript "$API_URL/openapi.json" --output postroom.d.ts
import createClient from "openapi-fetch";
import type { components, paths } from "./postroom.d.ts";

const client = createClient<paths>({
  baseUrl: process.env.API_URL,
  headers: { Authorization: `Bearer ${process.env.API_KEY}` },
});

const body: components["schemas"]["DeliveryBody"] = {
  to: ["Ada Lovelace <ada@example.org>"],
  subject: "Order 42",
  text: "Thank you, Ada.",
  tags: { order: "42" },
};
const sent = await client.POST("/v1/deliveries", { body, params: { header: { "Idempotency-Key": "order-42" } } });
if (sent.error) throw new Error(sent.error.detail);

const found = await client.GET("/v1/deliveries/{delivery_id}", { params: { path: { delivery_id: sent.data.id } } });
console.log(found.data?.recipients[0].address, found.data?.status);

const listed = await client.GET("/v1/deliveries", { params: { query: { status: "queued", limit: 10 } } });
for (const summary of listed.data?.items ?? []) console.log(summary.id === sent.data.id, summary.created_at);

const refused = await client.POST("/v1/deliveries", { body: { ...body, to: ["not an address"] } });
console.log(refused.error?.code, refused.error?.errors.map((error) => error.field));
