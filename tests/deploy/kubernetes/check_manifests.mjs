// deploy/kubernetes: every manifest is what its schema wants, they fit together, and what they say to carat is right.
// usage: check_manifests.mjs CARAT
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import test from "node:test";
import { argument, complaints, configOf, container, kindOf, ofKind, readManifests } from "./manifests.mjs";

const carat = process.env.CARAT_PROGRAM;
const files = readManifests();
const all = [...files.values()].flat();

test("every manifest is as its schema wants it", async () => {
  for (const [file, documents] of files) {
    for (const manifest of documents) {
      assert.deepEqual(await complaints(manifest), [], `${file}: ${kindOf(manifest)}`);
    }
  }
  const config = configOf(files, "carat-epp");
  assert.deepEqual(await complaints(config), []);
});

test("the check finds misspelt fields, wrong types and what is missing", async () => {
  const broken = (kind, change) => {
    const manifest = structuredClone(all.find((candidate) => candidate.kind === kind));
    change(manifest.spec);
    return complaints(manifest);
  };
  const expectOne = async (found, pattern) => assert.match((await found).join("\n"), pattern);
  await expectOne(broken("Deployment", (spec) => (spec.template.spec.terminationGracePeriod = 1)), /terminationGracePeriod is no field/);
  await expectOne(broken("Deployment", (spec) => (spec.template.spec.containers[0].startupProbe.httpget = {})), /httpget is no field/);
  await expectOne(broken("Deployment", (spec) => (spec.replicas = "3")), /\/spec\/replicas type/);
  await expectOne(broken("Deployment", (spec) => delete spec.selector), /required/);
  await expectOne(broken("Service", (spec) => (spec.ports[0].port = "http")), /\/spec\/ports\/0\/port type/);
  await expectOne(broken("HorizontalPodAutoscaler", (spec) => (spec.metrics[0].pods.metrics = {})), /metrics is no field/);
  await expectOne(broken("PodDisruptionBudget", (spec) => (spec.unhealthyPodEviction = "x")), /is no field/);
  await expectOne(broken("NetworkPolicy", (spec) => (spec.ingress[0].form = [])), /form is no field/);
  await expectOne(broken("ServiceMonitor", (spec) => (spec.endpoints[0].intervall = "1s")), /intervall is no field/);
  await expectOne(broken("ServiceMonitor", (spec) => (spec.endpoints[0].interval = 15)), /interval type/);
  await expectOne(broken("HTTPRoute", (spec) => (spec.rules[0].backendRefs[0].port = "a")), /port type/);
  await expectOne(broken("InferencePool", (spec) => (spec.targetPortNumber = 8080)), /must NOT have additional/);
  await expectOne(broken("InferencePool", (spec) => (spec.endpointPickerRef.failureMode = "open")), /failureMode/);
  await expectOne(complaints({ apiVersion: "v2", kind: "Pod" }), /no schema/);
});

test("kustomize takes the files that need no extension of Kubernetes", () => {
  const [kustomization] = files.get("kustomization.yaml");
  const plain = [...files].filter(([, documents]) =>
    documents.every((manifest) => /^(v1|apps\/v1|policy\/v1|autoscaling\/v2|networking\.k8s\.io\/v1) /.test(kindOf(manifest))));
  assert.deepEqual([...kustomization.resources].sort(), plain.map(([file]) => file));
  assert.equal(kustomization.images[0].name, container(files).main.image);
});

test("labels, ports and names fit together", () => {
  const { deployment, pod, main } = container(files);
  const labels = pod.metadata.labels;
  const selects = (selector) => Object.entries(selector).every(([key, value]) => labels[key] === value);
  assert.ok(selects(deployment.spec.selector.matchLabels));
  for (const service of ofKind(files, "Service")) {
    assert.ok(selects(service.spec.selector), service.metadata.name);
    assert.equal(service.spec.ports[0].targetPort, main.ports[0].name);
  }
  assert.ok(selects(ofKind(files, "PodDisruptionBudget")[0].spec.selector.matchLabels));
  assert.ok(selects(ofKind(files, "NetworkPolicy")[0].spec.podSelector.matchLabels));
  assert.equal(ofKind(files, "NetworkPolicy")[0].spec.ingress[0].ports[0].port, main.ports[0].name);
  for (const probe of [main.startupProbe, main.readinessProbe, main.livenessProbe]) {
    assert.equal(probe.httpGet.port, main.ports[0].name);
  }
  assert.equal(argument(files, "--port"), String(main.ports[0].containerPort));

  const [pool] = ofKind(files, "InferencePool");
  assert.ok(selects(pool.spec.selector.matchLabels));
  assert.equal(pool.spec.targetPorts[0].number, main.ports[0].containerPort);
  const [backend] = ofKind(files, "HTTPRoute")[0].spec.rules[0].backendRefs;
  assert.deepEqual([backend.kind, backend.name, backend.group], ["InferencePool", pool.metadata.name, pool.apiVersion.split("/")[0]]);

  const [autoscaler] = ofKind(files, "HorizontalPodAutoscaler");
  assert.equal(autoscaler.spec.scaleTargetRef.name, deployment.metadata.name);
  assert.ok(autoscaler.spec.minReplicas <= deployment.spec.replicas && deployment.spec.replicas <= autoscaler.spec.maxReplicas);
  // A replica that uses all of its places is beyond the mark, or it would never be reached.
  const running = autoscaler.spec.metrics.find((metric) => metric.pods.metric.name === "carat_requests_running");
  assert.ok(Number(running.pods.target.averageValue) < Number(argument(files, "--parallel")));

  // The ServiceMonitor finds one of the Services, not both: each pod is asked once.
  const [monitor] = ofKind(files, "ServiceMonitor");
  const found = ofKind(files, "Service").filter((service) =>
    Object.entries(monitor.spec.selector.matchLabels).every(([key, value]) => service.metadata.labels[key] === value));
  assert.deepEqual(found.map((service) => service.metadata.name), ["carat"]);
  assert.equal(monitor.spec.endpoints[0].port, found[0].spec.ports[0].name);
  assert.equal(found[0].metadata.labels[monitor.spec.jobLabel], "carat");
});

test("an endpoint picker and the autoscaler ask for metrics that the adapter has rules for", () => {
  const labels = container(files).pod.metadata.labels;
  const config = configOf(files, "carat-epp");
  const types = config.plugins.map((plugin) => plugin.type);
  const references = [
    ...config.schedulingProfiles.flatMap((profile) => profile.plugins.map((plugin) => plugin.pluginRef)),
    ...config.dataLayer.sources.flatMap((source) => [source.pluginRef, ...source.extractors.map((e) => e.pluginRef)]),
  ];
  for (const reference of references) assert.ok(types.includes(reference), reference);
  const extractor = config.plugins.find((plugin) => plugin.type === "core-metrics-extractor");
  const engine = extractor.parameters.engineConfigs[0].name;
  assert.equal(labels["llm-d.ai/engine-type"], engine);
  assert.equal(labels["inference.networking.k8s.io/engine-type"], engine);

  const [rule] = configOf(files, "carat-adapter-rules").rules;
  const series = new RegExp(/__name__=~"([^"]+)"/.exec(rule.seriesQuery)[1]);
  for (const metric of ofKind(files, "HorizontalPodAutoscaler")[0].spec.metrics) assert.match(metric.pods.metric.name, series);
});

test("the grace period holds the whole drain", () => {
  const { pod, main } = container(files);
  const [command, seconds] = main.lifecycle.preStop.exec.command;
  assert.equal(command, "sleep");
  const untilCutOff = 10, untilClosed = 2;  // as docs/server.md says
  const drain = Number(seconds) + Number(argument(files, "--drain-grace")) + Number(argument(files, "--drain-timeout"));
  assert.ok(drain + untilCutOff + untilClosed < pod.spec.terminationGracePeriodSeconds);
  // Whoever asks for readiness has noticed before the last new request is taken.
  const noticed = main.readinessProbe.periodSeconds * main.readinessProbe.failureThreshold + main.readinessProbe.timeoutSeconds;
  assert.ok(noticed < Number(seconds) + Number(argument(files, "--drain-grace")));
  // A drain is not taken for a hang, and a model has time to load.
  assert.equal(main.livenessProbe.httpGet.path, "/livez");
  assert.ok(main.startupProbe.periodSeconds * main.startupProbe.failureThreshold >= 600);
});

test("carat takes the arguments", () => {
  const { main } = container(files);
  // What is refused is the model, which is not here, and nothing that comes before it.
  const result = spawnSync(carat, main.args, { encoding: "utf8", timeout: 20000 });
  assert.equal(result.status, 2, result.stderr);
  assert.match(result.stderr, /\/models\/gemma-4-E4B-it-Q4_0\.gguf/);
});
