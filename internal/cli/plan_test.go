package cli

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/offline/sizing"
)

func planFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	must.Write(t, path, text)
	return path
}

func TestPlanPrintsJSON(t *testing.T) {
	rules := planFile(t, "domain: d\ndescriptors:\n- {key: user, rate_limit: {unit: minute, requests_per_unit: 5}}\n")
	p := Plan{rulesFlags: rulesFlags{Config: []string{rules}}, Limit: 1000, Replicas: 100, Probability: 0.001, Users: 10, Rate: 1, Output: "json"}
	must.Succeed(t, p.Validate())
	var out, stderr bytes.Buffer
	if err := p.Run(Streams{Out: &out, Err: &stderr}); err != nil || stderr.Len() > 0 {
		t.Fatal(err, stderr.String())
	}
	var got struct {
		LocalLimit sizing.LocalLimit `json:"local_limit"`
		Plan       sizing.Report
		Figures    sizing.Measured
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err, out.String())
	}
	if got.LocalLimit.Any.Limit != 26 || got.Plan.Keys != 10 || len(got.Figures.Machines) == 0 || got.Plan.Limits[0].Over.Outage != nil {
		t.Errorf("got %+v", got)
	}
}

// One replica has the whole limit. A reader who has forgotten --replicas sees that immediately.
func TestPlanOfOneReplicaNamesTheFlag(t *testing.T) {
	var out, stderr bytes.Buffer
	if err := (&Plan{Limit: 1000, Replicas: 1, Probability: 0.001, Output: "text"}).Run(Streams{Out: &out, Err: &stderr}); err != nil {
		t.Fatal(err, stderr.String())
	}
	for _, want := range []string{"its local limit is the whole limit", "Set --replicas"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, &out)
		}
	}
}

func TestPlanErrorsNameTheRemedy(t *testing.T) {
	good := planFile(t, "domain: d\ndescriptors:\n- {key: user, rate_limit: {unit: minute, requests_per_unit: 5}}\n")
	bad := planFile(t, "domain: d\ndescriptors:\n- {key: user, rate_limit: {unit: fortnight, requests_per_unit: 5}}\n")
	for _, c := range []struct {
		plan Plan
		want string
	}{
		{Plan{}, "--limit"},
		{Plan{Users: 5}, "--limit"},
		{Plan{Limit: 5, Users: 5}, "--config"},
		{Plan{rulesFlags: rulesFlags{Config: []string{good}}}, "--users"},
		{Plan{Limit: -5}, "from 1 to"},
		{Plan{Limit: 1_000_000_000 + 1}, "from 1 to"},
		{Plan{Limit: 5, Replicas: -1}, "replicas"},
		{Plan{Limit: 5, Probability: 1}, "below 1"},
		{Plan{Limit: 5, Probability: -1}, "above 0"},
		{Plan{rulesFlags: rulesFlags{Config: []string{bad}}, Users: 5}, "rules.yaml:3"},
		{Plan{rulesFlags: rulesFlags{Config: []string{"missing.yaml"}}, Users: 5}, "missing.yaml"},
		{Plan{rulesFlags: rulesFlags{Config: []string{good}}, Users: 5, Values: []string{"user"}}, "--values"},
		{Plan{rulesFlags: rulesFlags{Config: []string{good}}, Users: 5, Values: []string{"users=5"}}, `"users"`},
	} {
		if c.plan.Replicas == 0 {
			c.plan.Replicas = 1
		}
		if c.plan.Probability == 0 {
			c.plan.Probability = 0.1
		}
		var out, stderr bytes.Buffer
		err := c.plan.Validate()
		if err != nil {
			stderr.WriteString(err.Error())
		} else if code := ExitCode(c.plan.Run(Streams{Out: &out, Err: &stderr}), &stderr); code != 2 {
			t.Errorf("%+v: exit code %d, want 2", c.plan, code)
		}
		if !strings.Contains(stderr.String(), c.want) || out.Len() > 0 {
			t.Errorf("%+v: got %q and the output %q, want a fault with %q", c.plan, &stderr, &out, c.want)
		}
	}
}
