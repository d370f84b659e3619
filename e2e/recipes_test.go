package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/freeport"
	"github.com/weir-rls/weir/internal/must"
)

const recipeFolder = "../docs/recipes"

// A recipe is a page of docs/recipes.
type recipe struct {
	page     string
	rules    string
	listener string // Envoy's listener
	settings string // Weir's settings, "NAME=value NAME=value"
	steps    []docStep
}

// The commands of each recipe print the output on its page. The test takes rules, listeners,
// commands and output from the pages. Recipes without settings share one Envoy, with a listener for
// each page, and one Weir with the rules of all pages.
func TestRecipesPrintShownOutput(t *testing.T) {
	t.Parallel()
	frame, recipes := readRecipes(t)
	bySettings := map[string][]recipe{}
	for _, r := range recipes {
		bySettings[r.settings] = append(bySettings[r.settings], r)
	}
	for _, store := range stores {
		for _, settings := range slices.Sorted(maps.Keys(bySettings)) {
			t.Run(store.name+" "+settings, func(t *testing.T) {
				t.Parallel()
				expectShownOutput(t, store.redis, frame, bySettings[settings])
			})
		}
	}
}

// Envoy accepts envoy.yaml and each listener.yaml with the command of the index.
func TestRecipesStartAsShown(t *testing.T) {
	t.Parallel()
	path, err := harness.FindEnvoy()
	must.Succeed(t, err)
	start := readPage(t, "recipes/README.md").named["sh start-envoy"]
	if start == "" {
		t.Fatal("docs/recipes/README.md does not start Envoy")
	}
	frame, recipes := readRecipes(t)
	for _, r := range recipes {
		dir := t.TempDir()
		must.Write(t, filepath.Join(dir, "envoy.yaml"), frame)
		must.Write(t, filepath.Join(dir, "listener.yaml"), r.listener)
		if out, code := bash(t, dir, `envoy() { "`+path+`" --mode validate --log-level warning "$@"; }`+"\n"+start); code != 0 {
			t.Errorf("%s: exit code %d\n%s", r.page, code, out)
		}
	}
}

// With a body for denied requests, docs/recipes/bandwidth.md also charges the bytes of each 429.
func TestBandwidthCountsTheBodyOfA429(t *testing.T) {
	t.Parallel()
	frame, recipes := readRecipes(t)
	i := slices.IndexFunc(recipes, func(r recipe) bool { return r.page == "bandwidth.md" })
	only := recipes[i : i+1]
	only[0].rules = "on_deny: {problem: true}\n" + only[0].rules
	w := startRecipeWeir(t, "", only)
	addresses, _ := startRecipeEnvoy(t, w, frame, only)
	sent := 0
	for status := 0; status != http.StatusTooManyRequests; {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addresses[0], nil)
		must.Succeed(t, err)
		r.Header.Set("x-tenant-id", "acme")
		response, err := http.DefaultClient.Do(r)
		must.Succeed(t, err)
		body, err := io.ReadAll(response.Body)
		must.Succeed(t, errors.Join(err, response.Body.Close()))
		if len(body) == 0 {
			t.Fatalf("a %d without a body", response.StatusCode)
		}
		status, sent = response.StatusCode, sent+len(body)
	}
	want := fmt.Sprintf("total_hits{domain=\"bandwidth\",key1=\"tenant\"} %d\n", sent)
	must.Until(t, want, func() bool { return strings.Contains(harness.MustGet(t, w.HTTP+"/metrics"), want) })
}

// readRecipes returns the bootstrap of docs/recipes/README.md, and the other pages.
func readRecipes(t *testing.T) (frame string, recipes []recipe) {
	t.Helper()
	pages, err := filepath.Glob(filepath.Join(recipeFolder, "*.md"))
	must.Succeed(t, err)
	for _, path := range pages {
		p := readBlocks(string(must.Read(t, path)))
		r := recipe{page: filepath.Base(path), rules: p.named["yaml rules.yaml"], steps: p.steps}
		r.settings, _, _ = strings.Cut(p.named["sh weir"], " weir ")
		switch {
		case r.page == "README.md":
			frame = p.named["yaml envoy.yaml"]
		case r.rules == "" || len(r.steps) == 0 || r.steps[0].output == "":
			t.Errorf("%s: want rules.yaml, and commands with their output", r.page)
		default:
			r.listener = string(must.Read(t, filepath.Join(recipeFolder, "listeners", strings.TrimSuffix(r.page, ".md")+".yaml")))
			recipes = append(recipes, r)
		}
	}
	if frame == "" || len(recipes) == 0 {
		t.Fatalf("%d recipes, and a bootstrap of %d bytes: this test no longer reads the pages", len(recipes), len(frame))
	}
	return frame, recipes
}

// expectShownOutput runs the commands of each page, which must print the output on the page. It
// repeats a failed run only if an hour ended during the run, because windows may end with an hour.
func expectShownOutput(t *testing.T, redis func(*testing.T) string, frame string, recipes []recipe) {
	t.Helper()
	hour := func() time.Time { return time.Now().Truncate(time.Hour) }
	start := hour()
	failed := runRecipes(t, redis(t), frame, recipes)
	if len(failed) > 0 && !hour().Equal(start) {
		t.Logf("an hour ended during %q", failed)
		failed = runRecipes(t, redis(t), frame, recipes)
	}
	for _, f := range failed {
		t.Error(f)
	}
}

// runRecipes runs the commands of each page on a new Weir and a new Envoy. It returns the
// differences from the output on the pages.
func runRecipes(t *testing.T, redis, frame string, recipes []recipe) (failed []string) {
	t.Helper()
	w := startRecipeWeir(t, redis, recipes)
	addresses, admin := startRecipeEnvoy(t, w, frame, recipes)
	var mu sync.Mutex
	var running sync.WaitGroup
	for i, r := range recipes {
		running.Go(func() {
			hosts := strings.NewReplacer("localhost:10000", addresses[i], "localhost:8080", strings.TrimPrefix(w.HTTP, "http://"))
			if err := r.run(t, hosts, waitingCurl(r, admin, addresses[i])); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, r.page+": "+err.Error())
			}
		})
	}
	running.Wait()
	return failed
}

// waitingCurl returns a curl for bash. If the listener charges at the end of a request, this curl
// returns after Weir has decided that charge. Envoy begins the charge before it counts the
// connection of the request as closed.
func waitingCurl(r recipe, admin, address string) string {
	if !strings.Contains(r.listener, "apply_on_stream_done: true") {
		return ""
	}
	stats := func(name string) string { return admin + "/stats?filter=" + url.QueryEscape("^"+name+"_active$") }
	connections := stats(`listener\.` + strings.ReplaceAll(address, ":", "_") + `\.downstream_cx`)
	charges := stats(`cluster\.weir\.upstream_rq(_pending)?`)
	return `curl() {
  command curl "$@"
  local status=$? stats active
  for stats in '` + connections + `' '` + charges + `'; do
    active=
    until [[ $active == *': 0'* && $active != *': '[1-9]* ]]; do
      active=$(command curl -s "$stats")
    done
  done
  return $status
}
`
}

// run runs the commands of the page after setup, in one bash for each step.
func (r recipe) run(t *testing.T, hosts *strings.Replacer, setup string) error {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	for _, step := range r.steps {
		c := exec.CommandContext(ctx, "bash", "-c", setup+hosts.Replace(step.commands))
		out, err := c.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w\n%s\nprints\n%s", err, step.commands, out)
		}
		if got := string(out); step.output != "" && got != step.output {
			return fmt.Errorf("\n%s\nprints\n%s\nand the page shows\n%s", step.commands, got, step.output)
		}
	}
	return nil
}

// startRecipeWeir starts a Weir with the rules and the settings of the pages.
func startRecipeWeir(t *testing.T, redis string, recipes []recipe) *harness.Weir {
	t.Helper()
	rules := t.TempDir()
	for _, r := range recipes {
		must.Write(t, filepath.Join(rules, r.page+".yaml"), r.rules)
	}
	return harness.MustStartWeir(t, harness.WeirOptions{
		Binary: binary(t), Rules: rules, Redis: redis,
		Env: append(strings.Fields(recipes[0].settings), "STORE_TIMEOUT=1m"),
	})
}

// startRecipeEnvoy starts an Envoy with a listener for each page. It returns their addresses and
// the URL of Envoy's admin page. Envoy merges listener.yaml into envoy.yaml in the same manner.
func startRecipeEnvoy(t *testing.T, w *harness.Weir, frame string, recipes []recipe) (addresses []string, admin string) {
	t.Helper()
	type bootstrap struct {
		Admin  map[string]any `yaml:"admin,omitempty"`
		Static struct {
			Listeners []map[string]any `yaml:"listeners"`
			Clusters  []map[string]any `yaml:"clusters,omitempty"`
		} `yaml:"static_resources"`
	}
	decode := func(name, text string) (b bootstrap) {
		d := yaml.NewDecoder(strings.NewReader(text))
		d.KnownFields(true)
		if err := d.Decode(&b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return b
	}
	free := harness.MustFreePorts(t, len(recipes))
	all := decode("envoy.yaml", frame)
	for i, r := range recipes {
		port := free[i]
		if i == 0 {
			port = harness.IngressPort // StartEnvoy replaces it
		}
		for _, l := range decode(r.page, r.listener).Static.Listeners {
			l["name"] = r.page
			l["address"] = map[string]any{"socket_address": map[string]any{"address": "127.0.0.1", "port_value": port}}
			all.Static.Listeners = append(all.Static.Listeners, l)
		}
		addresses = append(addresses, freeport.Addr(port))
	}
	text, err := yaml.Marshal(all)
	must.Succeed(t, err)
	dir := t.TempDir()
	e := harness.MustStartEnvoy(t, harness.EnvoyOptions{
		Bootstrap: must.Write(t, filepath.Join(dir, "bootstrap.yaml"), string(text)), Weir: w.GRPC, Dir: dir, Timeout: testTimeout, Ports: free[1:],
	})
	addresses[0] = strings.TrimPrefix(e.URL, "http://")
	return addresses, e.Admin
}
