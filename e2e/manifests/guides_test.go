package manifests

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gatewayv1alpha1 "github.com/envoyproxy/gateway/api/v1alpha1"
	contourv1 "github.com/projectcontour/contour/apis/projectcontour/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/kubectl/pkg/cmd"
	"mvdan.cc/sh/v3/syntax"
	"sigs.k8s.io/yaml"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/certtest"
	"github.com/weir-rls/weir/internal/must"
)

// A page is documentation for operators. The info string of a code block decides how the block is
// run or checked.
type page struct {
	path, text string
}

func pages(t *testing.T) []page {
	t.Helper()
	guides, err := filepath.Glob(root + "/docs/deploy/*.md")
	if err != nil || len(guides) < 4 {
		t.Fatalf("%v, %v", guides, err)
	}
	var all []page
	for _, path := range append(guides, root+"/docs/capacity.md", root+"/docs/upgrade.md", root+"/docs/runbooks.md", k8s+"/README.md") {
		all = append(all, page{path, readFile(t, path)})
	}
	return all
}

// A block is a fenced code block with its info string.
type block struct{ page, info, text string }

var fence = regexp.MustCompile("(?ms)^( *)```([^\n]*)\n(.*?)^ *```$")

func blocks(t *testing.T, info string) []block {
	t.Helper()
	var all []block
	for _, p := range pages(t) {
		for _, b := range fence.FindAllStringSubmatch(p.text, -1) {
			if b[2] == info {
				all = append(all, block{p.path, b[2], regexp.MustCompile("(?m)^"+b[1]).ReplaceAllString(b[3], "")})
			}
		}
	}
	if len(all) == 0 {
		t.Fatalf("no block %q: this test checks too little", info)
	}
	return all
}

func TestEveryCodeBlockIsChecked(t *testing.T) {
	known := []string{
		"sh cluster shadow-mode",
		"sh cluster no-limits",
		"sh passing",
		"text passing",
		"promql",
		"sh unblock-find",
		"text key",
		"sh unblock-delete",
		"sh unblock-refund",
		"sh unblock-reset",
		"text reset",
		"sh blocked-top",
		"text top",
		"sh envoy-off",
		"sh envoy-on",
		"text output",
		"sh run",
		"sh demo",
		"sh cluster",
		"sh helm",
		"yaml quota",
		"yaml values",
		"text helm-error",
		"yaml kustomization",
		"yaml apply",
		"yaml envoy-gateway",
		"yaml envoy-gateway-overlay",
		"yaml envoy-cluster",
		"yaml envoy-tls",
		"yaml envoy-rate-limits",
	}
	for _, p := range pages(t) {
		for _, b := range fence.FindAllStringSubmatch(p.text, -1) {
			if !slices.Contains(known, b[2]) {
				t.Errorf("%s: no test checks blocks %q:\n%s", p.path, b[2], b[3])
			}
		}
	}
}

// A cluster finds one image under one name: the manifests have it, docs/install.md builds and loads
// it, and a release publishes it.
func TestManifestsAndReleaseUseOneImageName(t *testing.T) {
	image := weirOf(t, build(t, k8s+"/overlays/redis")).Spec.Template.Spec.Containers[0].Image
	name, tag, _ := strings.Cut(image, ":")
	make, load := "make image IMAGE="+name+" TAG="+tag+"\n", "kind load image-archive dist/weir-linux-amd64.tar\n"
	want := map[string][]string{
		"docs/install.md":               {make, load, "export IMAGE=" + name + "\n"},
		"docs/switching.md":             {"`" + image + "`"},
		"deploy/helm/weir/values.yaml":  {"\n  repository: " + name + "\n"},
		".github/workflows/release.yml": {" IMAGE: " + name + "\n"},
		"tools/release/main.go":         {`"name", "` + name + `"`},
	}
	for path, lines := range want {
		text := readFile(t, filepath.Join(root, path))
		for _, line := range lines {
			if !strings.Contains(text, line) {
				t.Errorf("%s: no %q", path, line)
			}
		}
	}
}

// script runs a block at the root of the repository, with weir and envoy on PATH.
func script(t *testing.T, text string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", text)
	c.Dir = root
	c.Env = append(os.Environ(), "PATH="+filepath.Dir(binary(t))+":"+os.Getenv("PATH"))
	var out, failed bytes.Buffer
	c.Stdout, c.Stderr = &out, &failed
	if err := c.Run(); err != nil {
		return out.String(), fmt.Errorf("%w\n%s", err, failed.String())
	}
	return out.String(), nil
}

func TestGuideCommandsRun(t *testing.T) {
	for _, b := range blocks(t, "sh run") {
		if out, err := script(t, b.text); err != nil {
			t.Errorf("%s:\n%s%s%v", b.page, b.text, out, err)
		}
	}
}

// The guide's curl commands reach the limit behind a real Envoy with the guide's bootstrap file.
func TestPlainEnvoyGuideReachesTheLimit(t *testing.T) {
	all := build(t, k8s+"/overlays/redis")
	p := run(t, all, storeOf(t, all))
	envoy := harness.MustStartEnvoy(t, harness.EnvoyOptions{
		Bootstrap: root + "/envoy/bootstrap.yaml", Weir: "127.0.0.1:" + p.ports["grpc"], Timeout: stepTimeout,
	})
	for _, b := range blocks(t, "sh demo") {
		if !strings.Contains(b.text, "localhost:10000") {
			t.Fatalf("%s does not call Envoy:\n%s", b.page, b.text)
		}
		out, err := script(t, strings.ReplaceAll(b.text, "localhost:10000", envoy.URL))
		if want := "200\n200\n200\n200\n200\n429\n"; err != nil || out != want {
			t.Errorf("%s: %q, want %q, %v", b.page, out, want, err)
		}
	}
}

// kubectl's parser accepts the commands that need a cluster, and the objects that they name exist.
func TestClusterCommandsNameExistingObjects(t *testing.T) {
	there := knownObjects(t)
	n := 0
	for _, info := range []string{
		"sh cluster", "sh cluster shadow-mode", "sh cluster no-limits", "sh unblock-find", "sh unblock-delete", "sh unblock-refund",
		"sh unblock-reset", "sh blocked-top",
	} {
		for _, b := range blocks(t, info) {
			n += there.checkShell(t, b.page, b.text)
		}
	}
	inline := regexp.MustCompile("`((?:kubectl|weir) [^`]+)`")
	for _, p := range pages(t) {
		for _, code := range inline.FindAllStringSubmatch(p.text, -1) {
			n += there.checkShell(t, p.path, code[1])
		}
	}
	if n < 40 {
		t.Errorf("%d commands: this test checks too little", n)
	}
}

// objects holds the objects that commands may name, as "namespace kind/name".
type objects map[string]bool

func knownObjects(t *testing.T) objects {
	t.Helper()
	there := objects{
		// Created by Envoy Gateway, Istio and Contour.
		"envoy-gateway-system deployment/envoy-gateway": true, "envoy-gateway-system deployment/envoy-ratelimit": true,
		"istio-system service/istio-ingressgateway": true, "projectcontour deployment/contour": true,
		"projectcontour service/envoy": true, " namespace/default": true,
	}
	for _, dir := range overlayDirs(t) {
		for _, o := range build(t, dir).objects {
			kind := strings.ToLower(o.kind)
			if kind == "horizontalpodautoscaler" {
				kind = "hpa"
			}
			there[o.namespace+" "+kind+"/"+o.name] = true
		}
	}
	return there
}

// checkShell checks every command of a script, including nested ones, and returns their number.
func (there objects) checkShell(t *testing.T, where, text string) (n int) {
	t.Helper()
	file, err := syntax.NewParser().Parse(strings.NewReader(text), where)
	if err != nil {
		t.Errorf("%s: %v in\n%s", where, err, text)
		return 0
	}
	syntax.Walk(file, func(node syntax.Node) bool {
		call, is := node.(*syntax.CallExpr)
		if !is || len(call.Args) == 0 {
			return true
		}
		n++
		var words []string
		for _, w := range call.Args {
			words = append(words, word(w))
		}
		switch words[0] {
		case "kubectl":
			there.checkKubectl(t, where, words[1:])
		case "envoy":
			if _, err := os.Stat(filepath.Join(root, words[len(words)-1])); err != nil {
				t.Errorf("%s: %v: %v", where, words, err)
			}
		case "weir":
			checkWeir(t, where, words[1:])
		case "helm": // TestHelmCommandsRender
		case "curl", "grep", "cut", "jq", "sort", "uniq", "seq", "sleep", "redis-cli":
		default:
			t.Errorf("%s: no test checks the command %s", where, words[0])
		}
		return true
	})
	return n
}

// word returns a word of a command, with "?" for expansions.
func word(w *syntax.Word) string {
	var b strings.Builder
	for _, part := range w.Parts {
		switch part := part.(type) {
		case *syntax.Lit:
			b.WriteString(part.Value)
		case *syntax.SglQuoted:
			b.WriteString(part.Value)
		default:
			b.WriteString("?")
		}
	}
	return b.String()
}

func (there objects) checkKubectl(t *testing.T, where string, args []string) {
	t.Helper()
	whole := strings.Join(args, " ")
	kubectl := cmd.NewKubectlCommand(cmd.KubectlOptions{IOStreams: genericiooptions.NewTestIOStreamsDiscard()})
	command, rest, err := kubectl.Find(args)
	if err == nil && command == kubectl {
		err = fmt.Errorf("no such command")
	}
	if err == nil {
		err = command.ParseFlags(rest)
	}
	if err != nil {
		t.Errorf("%s: kubectl %s: %v", where, whole, err)
		return
	}
	flags, value := command.Flags(), func(name string) string {
		if f := command.Flags().Lookup(name); f != nil {
			return f.Value.String()
		}
		return ""
	}
	if dir := value("kustomize"); dir != "" {
		path := filepath.Join(root, dir)
		if _, err := os.Stat(filepath.Join(path, "kustomization.yaml")); err != nil || !slices.Contains(overlayDirs(t), path) {
			t.Errorf("%s: kubectl %s: no overlay %s: %v", where, whole, dir, err)
		}
	}
	namespace, names := value("namespace"), flags.Args()
	if at := flags.ArgsLenAtDash(); at >= 0 {
		names = names[:at] // the rest runs in the container
	}
	for i, name := range names {
		kind, _, both := strings.Cut(name, "/")
		if !both && i+1 < len(names) && slices.Contains([]string{"get", "delete", "label", "describe"}, command.Name()) && i == 0 {
			name, both = kind+"/"+names[i+1], true
		}
		if kind == "namespace" {
			namespace = ""
		}
		if both && command.Name() != "create" && !strings.ContainsAny(name, "?=") && !regexp.MustCompile(`/[A-Z]+$`).MatchString(name) && !there[namespace+" "+name] {
			t.Errorf("%s: kubectl %s: no object %s in %q", where, whole, name, namespace)
		}
	}
}

// checkWeir fails the test if the command or a flag is not in the help.
func checkWeir(t *testing.T, where string, args []string) {
	t.Helper()
	help, err := weirCommand(t, args[0], "--help")
	if err != nil {
		t.Errorf("%s: weir %s: %v", where, args[0], err)
	}
	for _, a := range args[1:] {
		if flag, _, _ := strings.Cut(a, "="); strings.HasPrefix(a, "-") && !strings.Contains(help, flag) {
			t.Errorf("%s: weir %s has no %s", where, args[0], flag)
		}
	}
}

func TestExampleKustomizationBuilds(t *testing.T) {
	for _, b := range blocks(t, "yaml kustomization") {
		dir := t.TempDir()
		whole, err := filepath.Abs(root)
		must.Succeed(t, err)
		must.Succeed(t, os.Symlink(whole, filepath.Join(dir, "weir")))
		const rules = "domain: mine\ndescriptors:\n  - {key: user, rate_limit: {unit: minute, requests_per_unit: 7}}\n"
		must.Write(t, filepath.Join(dir, "mine", "kustomization.yaml"), b.text)
		must.Write(t, filepath.Join(dir, "mine", "rules.yaml"), rules)
		all := build(t, filepath.Join(dir, "mine"))
		if got := named[*corev1.ConfigMap](all, "weir-rules"); got == nil || got.Data["rules.yaml"] != rules {
			t.Errorf("the rules are %v", got)
		}
		weir := weirOf(t, all)
		set := settingsOf(t, all, weir)
		if set["LOG_LEVEL"] != "debug" || !strings.HasPrefix(set["REDIS_URL"], "redis-0.redis.data:6379,") || set["REDIS_TYPE"] != "CLUSTER" {
			t.Errorf("%v", set)
		}
		if image := weir.Spec.Template.Spec.Containers[0].Image; image != "registry.internal/weir-rls/weir:v0.1.0" {
			t.Errorf("the image is %s", image)
		}
		if set["GRPC_SERVER_USE_TLS"] != "true" || len(of[*appsv1.Deployment](all)) != 1 {
			t.Errorf("the components are missing: %v", all.objects)
		}
	}
}

func init() {
	for _, err := range []error{gatewayv1alpha1.AddToScheme(kinds), contourv1.AddToScheme(kinds)} {
		if err != nil {
			panic(err)
		}
	}
}

func TestGuideManifestsMatchTheirTypes(t *testing.T) {
	for _, b := range blocks(t, "yaml apply") {
		for document := range strings.SplitSeq(b.text, "\n---\n") {
			if _, err := decode([]byte(document)); err != nil {
				t.Errorf("%s: %v in\n%s", b.page, err, document)
			}
		}
	}
}

func TestEnvoyAcceptsGuideSnippets(t *testing.T) {
	replaced := func(b block) any {
		var piece any
		fromYAML(t, b.text, &piece)
		return piece
	}
	clusterOf := func(bootstrap map[string]any) map[string]any {
		clusters := bootstrap["static_resources"].(map[string]any)["clusters"].([]any)
		i := slices.IndexFunc(clusters, func(c any) bool { return c.(map[string]any)["name"] == "weir" })
		return clusters[i].(map[string]any)
	}
	cluster := blocks(t, "yaml envoy-cluster")[0]
	validate(t, func(bootstrap map[string]any) {
		c := clusterOf(bootstrap)
		clear(c)
		for key, value := range replaced(cluster).(map[string]any) {
			c[key] = value
		}
	})
	a := certtest.New(t)
	pair := a.Issue(t, "weir-client")
	for _, b := range blocks(t, "yaml envoy-tls") {
		b.text = strings.NewReplacer("/etc/envoy/weir/tls.crt", pair.Cert, "/etc/envoy/weir/tls.key", pair.Key, "/etc/envoy/weir/ca.crt", a.File).Replace(b.text)
		validate(t, func(bootstrap map[string]any) { clusterOf(bootstrap)["transport_socket"] = replaced(b) })
	}
	for _, b := range blocks(t, "yaml envoy-rate-limits") {
		validate(t, func(bootstrap map[string]any) {
			host := managerOf(bootstrap)["route_config"].(map[string]any)["virtual_hosts"].([]any)[0].(map[string]any)
			host["rate_limits"] = replaced(b)
		})
	}
	// The address is that of the headless Service.
	var c struct {
		LoadAssignment struct {
			Endpoints []struct {
				LbEndpoints []struct {
					Endpoint struct {
						Address struct {
							SocketAddress struct {
								Address   string `json:"address"`
								PortValue int32  `json:"port_value"`
							} `json:"socket_address"`
						}
					}
				} `json:"lb_endpoints"`
			}
		} `json:"load_assignment"`
	}
	must.Succeed(t, yaml.Unmarshal([]byte(cluster.text), &c))
	to := c.LoadAssignment.Endpoints[0].LbEndpoints[0].Endpoint.Address.SocketAddress
	service := named[*corev1.Service](build(t, k8s+"/overlays/redis"), "weir-headless")
	if want := service.Name + "." + service.Namespace + ".svc.cluster.local"; to.Address != want || to.PortValue != service.Spec.Ports[0].Port {
		t.Errorf("Envoy calls %+v, the Service is %s", to, want)
	}
}
