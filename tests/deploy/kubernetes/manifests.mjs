// The manifests of deploy/kubernetes as objects, and what is known of their kinds. Kubernetes' own kinds, those of
// Prometheus's operator and of the Gateway API are checked with the schemas that the packages kubernetes-models and
// @kubernetes-models/* carry. No package has those of the Inference Extension: its kinds are checked with the fields
// that its API reference (inference.networking.k8s.io/v1) and the endpoint picker's documentation have.
import { readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import Ajv from "ajv";
import { parse, parseAllDocuments } from "yaml";

const here = dirname(fileURLToPath(import.meta.url));
export const folder = join(here, "../../../deploy/kubernetes");

const schemas = {
  "apps/v1 Deployment": ["kubernetes-models", "IoK8sApiAppsV1Deployment"],
  "v1 Service": ["kubernetes-models", "IoK8sApiCoreV1Service"],
  "v1 ConfigMap": ["kubernetes-models", "IoK8sApiCoreV1ConfigMap"],
  "policy/v1 PodDisruptionBudget": ["kubernetes-models", "IoK8sApiPolicyV1PodDisruptionBudget"],
  "autoscaling/v2 HorizontalPodAutoscaler": ["kubernetes-models", "IoK8sApiAutoscalingV2HorizontalPodAutoscaler"],
  "networking.k8s.io/v1 NetworkPolicy": ["kubernetes-models", "IoK8sApiNetworkingV1NetworkPolicy"],
  "monitoring.coreos.com/v1 ServiceMonitor": [
    "@kubernetes-models/prometheus-operator",
    "ComGithubPrometheusOperatorPrometheusOperatorPkgApisMonitoringV1ServiceMonitor",
  ],
  "gateway.networking.k8s.io/v1 HTTPRoute": [
    "@kubernetes-models/gateway-api",
    "IoK8sSigsGatewayApiApisV1HTTPRoute",
  ],
};

const text = { type: "string", minLength: 1 };
const object = (properties, required = []) => ({ type: "object", properties, required, additionalProperties: false });
const list = (items) => ({ type: "array", items, minItems: 1 });
const port = object({ number: { type: "integer", minimum: 1, maximum: 65535 } }, ["number"]);
const name = { type: "string", minLength: 1, maxLength: 253 };
const head = (apiVersion, kind) => ({ apiVersion: { const: apiVersion }, kind: { const: kind } });

const ownSchemas = {
  "inference.networking.k8s.io/v1 InferencePool": object({
    ...head("inference.networking.k8s.io/v1", "InferencePool"),
    metadata: object({ name, namespace: name, labels: { type: "object" }, annotations: { type: "object" } }, ["name"]),
    spec: object({
      selector: object({
        matchLabels: {
          type: "object",
          minProperties: 1,
          additionalProperties: { type: "string", maxLength: 63, pattern: "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$" },
        },
      }, ["matchLabels"]),
      targetPorts: { ...list(port), maxItems: 8 },
      // "port" may be left out only where the picker is no Service.
      endpointPickerRef: {
        ...object({ group: { type: "string", maxLength: 253 }, kind: { type: "string", minLength: 1, maxLength: 63 },
          name, port, failureMode: { enum: ["FailOpen", "FailClose"] } }, ["name", "port"]),
      },
    }, ["selector", "targetPorts", "endpointPickerRef"]),
  }, ["apiVersion", "kind", "metadata", "spec"]),
  "inference.networking.x-k8s.io/v1alpha1 EndpointPickerConfig": object({
    ...head("inference.networking.x-k8s.io/v1alpha1", "EndpointPickerConfig"),
    plugins: list(object({ type: text, name: text, parameters: { type: "object" } }, ["type"])),
    dataLayer: object({
      sources: list(object({ pluginRef: text, extractors: list(object({ pluginRef: text }, ["pluginRef"])) }, ["pluginRef"])),
    }),
    schedulingProfiles: list(object({
      name: text,
      plugins: list(object({ pluginRef: text, weight: { type: "number" } }, ["pluginRef"])),
    }, ["name", "plugins"])),
  }, ["apiVersion", "kind", "plugins", "schedulingProfiles"]),
  "kustomize.config.k8s.io/v1beta1 Kustomization": object({
    ...head("kustomize.config.k8s.io/v1beta1", "Kustomization"),
    resources: list(text),
    images: list(object({ name: text, newName: text, newTag: text }, ["name"])),
  }, ["apiVersion", "kind", "resources"]),
};

// Every file of the folder with the documents in it.
export function readManifests() {
  const files = new Map();
  for (const file of readdirSync(folder).filter((entry) => entry.endsWith(".yaml")).sort()) {
    const documents = parseAllDocuments(readFileSync(join(folder, file), "utf8"), { uniqueKeys: true });
    for (const document of documents) if (document.errors.length) throw new Error(`${file}: ${document.errors[0]}`);
    files.set(file, documents.map((document) => document.toJS()));
  }
  return files;
}

export function kindOf(manifest) {
  return `${manifest.apiVersion} ${manifest.kind}`;
}

// Which fields a validator looks at: the schemas of Kubernetes do not forbid others, the API server only warns of them,
// and a misspelt field is one that has no effect.
function watching(value, seen) {
  if (value === null || typeof value !== "object") return value;
  if (!seen.has(value)) {
    const fields = new Set();
    const proxy = new Proxy(value, {
      get(target, key) {
        if (typeof key === "string") fields.add(key);
        return watching(target[key], seen);
      },
    });
    seen.set(value, { proxy, fields });
  }
  return seen.get(value).proxy;
}

function fieldsNobodyKnows(value, seen, path = "") {
  if (value === null || typeof value !== "object") return [];
  const known = seen.get(value)?.fields ?? new Set();
  return Object.keys(value).flatMap((key) =>
    known.has(key) ? fieldsNobodyKnows(value[key], seen, `${path}/${key}`) : [`${path}/${key} is no field`],
  );
}

// What is wrong with a manifest: sentences that name the field; none where it is as its kind must be.
export async function complaints(manifest) {
  const kind = kindOf(manifest);
  if (ownSchemas[kind]) {
    const validate = new Ajv({ allErrors: true, strict: false }).compile(ownSchemas[kind]);
    validate(manifest);
    return (validate.errors ?? []).map((error) => `${error.instancePath} ${error.message} ${JSON.stringify(error.params)}`);
  }
  if (!schemas[kind]) return [`there is no schema for ${kind}`];
  const [module, schema] = schemas[kind];
  const { validate } = await import(pathToFileURL(join(here, "../node_modules", module, "_schemas", `${schema}.js`)));
  const seen = new Map();
  validate(watching(manifest, seen));
  const errors = (validate.errors ?? []).map((error) => `${error.instancePath} ${error.keyword} ${JSON.stringify(error.params)}`);
  return [...errors, ...fieldsNobodyKnows(manifest, seen)];
}

// All manifests of one kind.
export function ofKind(files, kind) {
  return [...files.values()].flat().filter((manifest) => manifest.kind === kind);
}

export function container(files) {
  const [deployment] = ofKind(files, "Deployment");
  return { deployment, pod: deployment.spec.template, main: deployment.spec.template.spec.containers[0] };
}

// The file that a ConfigMap has under this name, as an object.
export function configOf(files, name) {
  const map = ofKind(files, "ConfigMap").find((candidate) => candidate.metadata.name === name);
  return parse(map.data["config.yaml"]);
}

// What a flag of the container's arguments says.
export function argument(files, flag) {
  const { args } = container(files).main;
  const at = args.indexOf(flag);
  return at < 0 ? undefined : args[at + 1];
}
