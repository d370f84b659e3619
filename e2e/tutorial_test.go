package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
)

// The test follows docs/tutorial.md: it saves the files, starts the three processes and runs each
// command, on ports of its own. A block of text is the expected output of the commands before it. A
// command runs again until its output is the expected one, because a window may end between two
// commands and a reload takes some time.
func TestTutorialCommandsPrintShownOutput(t *testing.T) {
	t.Parallel()
	page := must.Read(t, "../docs/tutorial.md")
	text := onFreePorts(t, string(page))
	dir := tutorialFolder(t)
	blocks := codeBlock.FindAllStringSubmatch(text, -1)
	started, compared := 0, 0
	for i, b := range blocks {
		kind, name, _ := strings.Cut(b[1], " ")
		switch {
		case kind == "yaml":
			must.Write(t, filepath.Join(dir, name), b[2])
		case kind == "sh" && name != "":
			startBlock(t, dir, name, b[2])
			started++
		case kind == "sh" && strings.Contains(b[2], "go build"): // done by tutorialFolder
		case kind == "sh":
			want := ""
			if i+1 < len(blocks) && blocks[i+1][1] == "text" {
				want = blocks[i+1][2]
				compared++
			}
			runBlock(t, dir, b[2], want)
		}
	}
	if started != 3 || compared < 5 {
		t.Errorf("%d processes and %d outputs: this test no longer reads the page", started, compared)
	}
}

// onFreePorts replaces the ports of the page by free ones.
func onFreePorts(t *testing.T, text string) string {
	t.Helper()
	ports := []string{"8000", "8080", "8081", "9901", "10000"}
	free := harness.MustFreePorts(t, len(ports))
	text = strings.Replace(text, "./weir --config", "./weir --port 8080 --grpc-port 8081 --config", 1)
	for i, port := range ports {
		text = regexp.MustCompile(`\b`+port+`\b`).ReplaceAllString(text, strconv.Itoa(free[i]))
	}
	return strings.ReplaceAll(text, "timeout: 0.1s", "timeout: 120s") // a busy machine
}

// tutorialFolder has the root of the repository as the page needs it: weir, and a tools/ensure that
// names the Envoy of the tests.
func tutorialFolder(t *testing.T) string {
	t.Helper()
	weir := binary(t)
	envoy, err := harness.FindEnvoy()
	must.Succeed(t, err)
	dir := t.TempDir()
	must.Succeed(t, os.Symlink(weir, filepath.Join(dir, "weir")))
	must.Succeed(t, os.Mkdir(filepath.Join(dir, "tools"), 0o755))
	ensure := fmt.Sprintf("#!/bin/sh\necho 'export ENVOY=%s'\n", envoy)
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "tools", "ensure"), []byte(ensure), 0o755))
	return dir
}

// startBlock starts the process of a block until the end of the test.
func startBlock(t *testing.T, dir, name, script string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(script), "\n")
	lines[len(lines)-1] = "exec " + lines[len(lines)-1]
	log, err := os.Create(filepath.Join(t.TempDir(), name+".log"))
	must.Succeed(t, err)
	c := exec.Command("bash", "-c", strings.Join(lines, "\n"))
	c.Dir, c.Stdout, c.Stderr = dir, log, log
	c.Env = append(os.Environ(), "DEBUG_PORT=0", "DRAIN_DELAY=0s")
	must.Succeed(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		_ = log.Close()
		if t.Failed() {
			said, _ := os.ReadFile(log.Name())
			t.Logf("%s:\n%s", name, said)
		}
	})
}

// runBlock runs a block until it prints want or, if want is empty, until it succeeds.
func runBlock(t *testing.T, dir, script, want string) {
	t.Helper()
	count := regexp.MustCompile(`(?m)(\} )\d+$`) // a metric's value, because a second attempt counts more
	for deadline := time.Now().Add(testTimeout); ; {
		c := exec.CommandContext(t.Context(), "bash", "-c", script)
		c.Dir = dir
		out, err := c.CombinedOutput()
		got := string(out)
		// A block with an output may fail: weir check does where the page shows it.
		if want == "" && err == nil || want != "" && count.ReplaceAllString(got, "$1") == count.ReplaceAllString(want, "$1") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s\nends with %v, prints\n%s\nand the page shows\n%s", script, err, got, want)
		}
		time.Sleep(time.Second)
	}
}
