package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/internal/must"
)

// A workflowStep is a step of a job of GitHub Actions.
type workflowStep struct {
	Uses, ID, If, Run string
	Env               map[string]string
}

// diffPage returns the steps of the workflow in docs/diff.md, and the other blocks of the page.
func diffPage(t *testing.T) (steps []workflowStep, files map[string]string) {
	t.Helper()
	files = readPage(t, "diff.md").named
	var workflow struct {
		Jobs map[string]struct{ Steps []workflowStep }
	}
	must.Succeed(t, yaml.Unmarshal([]byte(files["yaml workflow.yaml"]), &workflow))
	return workflow.Jobs["diff"].Steps, files
}

// The commands of the workflow in docs/diff.md, in a repository with a pull request. Only the build
// of Weir and the call of GitHub are replaced.
func TestWorkflowOfDiffRuns(t *testing.T) {
	t.Parallel()
	bin := binary(t)
	steps, files := diffPage(t)
	strict := strings.NewReplacer("requests_per_unit: 6", "requests_per_unit: 1", "requests_per_unit: 3", "requests_per_unit: 1")
	for _, c := range []struct {
		name, rules, weir string
		condition         string // instead of more than 10 keys
		code              int
		comment           string // "": none is written
	}{
		{"a change within the condition", files["yaml new.yaml"], bin, "newly_denied_keys > 10", 0, "### Rate limits: newly denied: 1 key, 4 requests"},
		{"a change beyond the condition", strict.Replace(files["yaml new.yaml"]), bin, "newly_denied_keys > 1", 2, "### Rate limits: newly denied: 2 keys"},
		{"no change", files["yaml old.yaml"], bin, "newly_denied_keys > 10", 0, "### Rate limits: no change"},
		{"a fault in the rules", "domain: [", bin, "newly_denied_keys > 10", 1, ""},
		{"no weir", files["yaml new.yaml"], "/does/not/exist", "newly_denied_keys > 10", 127, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			sh := func(env []string, script string) int {
				t.Helper()
				s := exec.CommandContext(t.Context(), "bash", "-e", "-c", script)
				s.Dir, s.Env = filepath.Join(dir, "repository"), append(os.Environ(), env...)
				out, err := s.CombinedOutput()
				if s.ProcessState == nil {
					t.Fatal(err)
				}
				t.Logf("%s\n%s", script, out)
				return s.ProcessState.ExitCode()
			}
			in := func(name, text string) string {
				path := filepath.Join(dir, name)
				must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o700))
				must.Succeed(t, os.WriteFile(path, []byte(text), 0o700))
				return path
			}
			in("repository/rules/rules.yaml", files["yaml old.yaml"])
			in("repository/fetch-recording", "#!/bin/sh\ncp "+in("day.ndjson", files["json day.ndjson"])+" \"$1\"\n")
			in("bin/weir", "#!/bin/sh\nexec "+c.weir+" \"$@\"\n")
			in("bin/gh", "#!/bin/sh\nwhile [ $# -gt 1 ]; do shift; done\ncp \"$1\" "+filepath.Join(dir, "comment")+"\n")
			output := in("output", "")
			env := []string{"PATH=" + filepath.Join(dir, "bin") + ":" + os.Getenv("PATH"), "GITHUB_STEP_SUMMARY=" + in("summary", ""), "GITHUB_OUTPUT=" + output,
				"GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b"}
			if sh(env, "git init -qb main && git add -A && git commit -qm old && git clone -q --bare . ../origin && git remote add origin ../origin && git checkout -qb pr") != 0 {
				t.Fatal("no repository")
			}
			in("repository/rules/rules.yaml", c.rules)
			code, ran := "", 0
			for i, step := range steps {
				switch {
				case step.Uses != "" || strings.HasPrefix(step.Run, "cd .weir && go build "):
					continue
				case step.If == "steps.diff.outputs.code == 0 || steps.diff.outputs.code == 2":
					if code != "0" && code != "2" {
						continue
					}
				case step.If != "":
					t.Fatalf("unknown condition %s", step.If)
				}
				ran++
				stepEnv := env
				for name, value := range step.Env {
					stepEnv = append(stepEnv, name+"="+strings.NewReplacer("${{ github.base_ref }}", "main", "${{ steps.diff.outputs.code }}", code).Replace(value))
				}
				exit := sh(stepEnv, strings.ReplaceAll(step.Run, "newly_denied_keys > 10", c.condition))
				if last := i == len(steps)-1; !last && exit != 0 || last && exit != c.code {
					t.Errorf("step %d: exit code %d", i+1, exit)
				}
				if step.ID == "diff" {
					text, _ := os.ReadFile(output)
					code = strings.TrimSpace(strings.TrimPrefix(string(text), "code="))
				}
			}
			comment, _ := os.ReadFile(filepath.Join(dir, "comment"))
			if !strings.HasPrefix(string(comment), c.comment) || (c.comment == "") != (len(comment) == 0) || strings.Contains(string(comment), "alice") {
				t.Errorf("the comment is %q, want %q", comment, c.comment)
			}
			if want := 5; c.comment != "" && ran != want {
				t.Errorf("%d steps ran, want %d", ran, want)
			}
		})
	}
}
