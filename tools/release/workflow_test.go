package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rhysd/actionlint"
)

const workflows = "../../.github/workflows"

func TestWorkflowsPassActionlint(t *testing.T) {
	t.Parallel()
	linter, err := actionlint.NewLinter(io.Discard, &actionlint.LinterOptions{})
	must(t, err)
	for _, path := range files(t, workflows, "*.yml") {
		faults, err := linter.LintFile(path, nil)
		must(t, err)
		for _, f := range faults {
			t.Error(f)
		}
	}
}

// Actions are pinned to a commit. Scripts contain no expressions, so no text of a tag or a pull
// request is run. No workflow may do more than its jobs declare.
func TestWorkflowsAreHardened(t *testing.T) {
	t.Parallel()
	pinned := regexp.MustCompile(`^[\w-]+/[\w-]+@[0-9a-f]{40}$`)
	for _, path := range files(t, workflows, "*.yml") {
		w := parse(t, path)
		name := filepath.Base(path)
		if w.Permissions == nil || w.Permissions.All != nil {
			t.Errorf("%s: want permissions at the top, each by its name", name)
		} else {
			for scope, p := range w.Permissions.Scopes {
				if scope != "contents" || p.Value.Value != "read" {
					t.Errorf("%s: every job may %s %s", name, p.Value.Value, scope)
				}
			}
		}
		for _, e := range w.On {
			if e.EventName() == "pull_request_target" || e.EventName() == "workflow_run" {
				t.Errorf("%s: %s gives secrets to code of a pull request", name, e.EventName())
			}
		}
		for _, job := range w.Jobs {
			if job.WorkflowCall == nil && job.TimeoutMinutes == nil {
				t.Errorf("%s: job %s has no timeout-minutes", name, job.ID.Value)
			}
			for _, step := range job.Steps {
				switch exec := step.Exec.(type) {
				case *actionlint.ExecAction:
					if !pinned.MatchString(exec.Uses.Value) {
						t.Errorf("%s: %s is not pinned to a commit", name, exec.Uses.Value)
					}
					if keep := exec.Inputs["persist-credentials"]; strings.HasPrefix(exec.Uses.Value, "actions/checkout@") &&
						(keep == nil || keep.Value.Value != "false") {
						t.Errorf("%s: checkout keeps its token for later steps", name)
					}
				case *actionlint.ExecRun:
					if strings.Contains(exec.Run.Value, "${{") {
						t.Errorf("%s: an expression in a script; use a variable of env:\n%s", name, exec.Run.Value)
					}
				}
			}
		}
	}
}

// Signatures cover exactly the bytes that two builds made, and the release is public only when all
// of it is signed.
func TestReleaseIsVerifiedSignedAndThenPublished(t *testing.T) {
	t.Parallel()
	w := parse(t, filepath.Join(workflows, "release.yml"))
	job := w.Jobs["release"]
	var got []string
	for scope, p := range job.Permissions.Scopes {
		got = append(got, scope+": "+p.Value.Value)
	}
	slices.Sort(got)
	if want := []string{"contents: write", "id-token: write", "packages: write"}; !slices.Equal(got, want) {
		t.Errorf("the job may %q, want %q", got, want)
	}
	if test := w.Jobs["test"]; len(job.Needs) != 1 || job.Needs[0].Value != "test" || test.WorkflowCall.Uses.Value != "./.github/workflows/ci.yml" {
		t.Error("the release does not wait for the tests of ci.yml")
	}
	var script strings.Builder
	for _, step := range job.Steps {
		if run, ok := step.Exec.(*actionlint.ExecRun); ok {
			script.WriteString(run.Run.Value + "\n")
		}
	}
	rest := script.String()
	for _, want := range []string{
		"make release-verify VERSION=\"$GITHUB_REF_NAME\"", "cosign attest-blob", "SHA256SUMS *.tar.gz *.tgz", "cosign sign-blob",
		"-push=", "cosign sign --yes --recursive \"$image\"", "--type slsaprovenance1", "--type cyclonedx",
		"helm push", "cosign sign --yes \"$chart\"", "gh release create",
	} {
		_, after, found := strings.Cut(rest, want)
		if !found {
			t.Fatalf("no %s after the steps before it", want)
		}
		rest = after
	}
}

func parse(t *testing.T, path string) *actionlint.Workflow {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	w, faults := actionlint.Parse(data)
	if len(faults) > 0 {
		t.Fatalf("%s: %v", path, faults)
	}
	return w
}

func files(t *testing.T, dir, pattern string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(all) == 0 {
		t.Fatalf("no %s in %s: %v", pattern, dir, err)
	}
	return all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
