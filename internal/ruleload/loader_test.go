package ruleload

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/descriptors/sources"
)

const rulesText = "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]\n"

// opened returns a Loader with an overlay, its log, and the errors of its failed loads.
func opened(t *testing.T) (l *Loader, logged *observer.ObservedLogs, failures *[]error) {
	t.Helper()
	dir := t.TempDir()
	rules, overlay := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "overlay.yaml")
	must.Write(t, rules, rulesText)
	must.Write(t, overlay, "domain: d\n")
	core, logged := observer.New(zap.InfoLevel)
	failures = &[]error{}
	loaded := func(_ *descriptors.Rules, err error) {
		if err != nil {
			*failures = append(*failures, err)
		}
	}
	l, err := Open(Options{Path: rules, Overlay: overlay, Log: zap.New(core), Loaded: loaded})
	must.Succeed(t, err)
	return l, logged, failures
}

func yaml(text string) []rulesfile.File { return []rulesfile.File{{Name: "f", Data: []byte(text)}} }

// A fault keeps the rules in force. The log names its source once, and again after Reload; each
// failed load is reported.
func TestFaultsLeaveTheRulesInForce(t *testing.T) {
	l, logged, failures := opened(t)
	overlay := func(text string) { l.loadOverlay(yaml(text), nil) }
	rules := func(text string) { _ = l.load(yaml(text), nil) }
	good := map[string]string{l.options.Overlay: "domain: d\n", l.options.Path: rulesText}
	for source, load := range map[string]func(text string){l.options.Overlay: overlay, l.options.Path: rules} {
		t.Run(filepath.Base(source), func(t *testing.T) {
			before := l.Rules()
			logged.TakeAll()
			*failures = nil
			load("domain: [")
			load("domain: [")
			l.Reload()
			load("domain: [")
			if got := logged.FilterMessage("rules not loaded").FilterField(zap.String("source", source)).Len(); got != 2 {
				t.Errorf("%d errors of %s in the log, want 2: %v", got, source, logged.All())
			}
			if len(*failures) != 3 {
				t.Errorf("reported %v, want 3 failures", *failures)
			}
			if l.Rules() != before {
				t.Error("a fault has replaced the rules")
			}
			load(good[source])
			load("domain: [")
			if got := logged.FilterMessage("rules not loaded").FilterField(zap.String("source", source)).Len(); got != 3 {
				t.Errorf("%d errors of %s in the log, want another one after a good load: %v", got, source, logged.All())
			}
			load(good[source])
		})
	}
}

// New rules do not hide that the overlay still has faults. A return to the overlay in force
// corrects them.
func TestFaultyOverlayIsReportedAfterEachLoad(t *testing.T) {
	l, _, failures := opened(t)
	l.loadOverlay(yaml("domain: d\n"), nil)
	l.loadOverlay(yaml("domain: ["), nil)
	*failures = nil
	must.Succeed(t, l.load(yaml(rulesText+"# new\n"), nil))
	if len(*failures) != 1 {
		t.Errorf("reported %v after new rules, want the fault of the overlay", *failures)
	}
	before := l.Rules()
	l.loadOverlay(yaml("domain: d\n"), nil)
	if l.Rules() == before {
		t.Error("the correction of the overlay was not reported")
	}
	must.Succeed(t, l.load(yaml(rulesText+"# newer\n"), nil))
	if len(*failures) != 1 {
		t.Errorf("reported %v after a good overlay, want nothing more", *failures)
	}
}

// A new overlay does not hide that the rules still cannot be read.
func TestUnreadableRulesAreReportedAfterANewOverlay(t *testing.T) {
	l, _, failures := opened(t)
	_ = l.load(nil, errors.New("unreadable"))
	*failures = nil
	l.loadOverlay(yaml("domain: d\n# new\n"), nil)
	if len(*failures) != 1 {
		t.Errorf("reported %v after a new overlay, want that the rules cannot be read", *failures)
	}
}

// The last report is a failure while the rules or the overlay, as they were read last, have a
// fault. The rules in force are those that were last parsed without one.
func TestFaultsAreReportedUntilTheirCorrection(t *testing.T) {
	const unreadable, malformed = "unreadable", "domain: ["
	perSecond := "domain: d\ndescriptors: [{key: k, rate_limit: {unit: second, requests_per_unit: 2}}]\n"
	calendar := "domain: d\ndescriptors: [{key: k, rate_limit: {window_start: calendar}}]\n" // conflicts with perSecond
	rulesTexts := []string{rulesText, perSecond, malformed, unreadable}
	overlayTexts := []string{"domain: d\n", calendar, malformed, unreadable}
	read := func(text string) ([]rulesfile.File, error) {
		if text == unreadable {
			return nil, errors.New(text)
		}
		return yaml(text), nil
	}
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		l, _, _ := opened(t)
		var last error
		l.options.Loaded = func(_ *descriptors.Rules, err error) { last = err }
		rules, overlay, inForce := rulesText, overlayTexts[0], l.Rules().Version()
		var rulesUnreadable, overlayFaulty, combinedFaulty bool
		trace := ""
		for range 12 {
			reparse := true
			if random.IntN(2) == 0 {
				text := rulesTexts[random.IntN(len(rulesTexts))]
				trace += "\nrules: " + text
				if rulesUnreadable = text == unreadable; rulesUnreadable {
					reparse = false
				} else {
					rules = text
				}
				_ = l.load(read(text))
			} else {
				text := overlayTexts[random.IntN(len(overlayTexts))]
				trace += "\noverlay: " + text
				if overlayFaulty = text == unreadable || text == malformed; overlayFaulty {
					reparse = false
				} else {
					overlay = text
				}
				l.loadOverlay(read(text))
			}
			if reparse {
				o, err := rulesfile.ParseOverlay(yaml(overlay)...)
				must.Succeed(t, err)
				parsed, _, err := rulesfile.ParseWith(rulesfile.Options{Overlay: o}, yaml(rules)...)
				if combinedFaulty = err != nil; err == nil {
					inForce = parsed.Version()
				}
			}
			if want := rulesUnreadable || overlayFaulty || combinedFaulty; (last != nil) != want || l.Rules().Version() != inForce {
				t.Fatalf("seed %d: reported %v, want a fault: %v; rules %s, want %s:%s", seed, last, want, l.Rules().Version(), inForce, trace)
			}
		}
	}
}

// A folder that lost its last file sets nothing, as at the start: replicas that start later decide
// by the same limits.
func TestRemovedOverlaySetsNothing(t *testing.T) {
	l, logged, failures := opened(t)
	plain := l.Rules().Version()
	l.loadOverlay(yaml("domain: d\ndescriptors: [{key: k, rate_limit: {algorithm: funnel}}]\n"), nil)
	if l.Rules().Version() == plain {
		t.Fatal("the overlay changes nothing")
	}
	l.loadOverlay(nil, fmt.Errorf("read: %w", sources.ErrNoFile))
	if got := l.Rules().Version(); got != plain || len(*failures) > 0 {
		t.Errorf("rules %s without the overlay, want %s; failures %v, log %v", got, plain, *failures, logged.All())
	}
}

// Rules that are in force already are not loaded again, unless a fault came between.
func TestUnchangedRulesStay(t *testing.T) {
	l, logged, _ := opened(t)
	first, files := l.Rules(), l.files
	_ = l.load(files, nil)
	if l.Rules() != first || logged.FilterMessage("rules unchanged").Len() != 1 {
		t.Errorf("unchanged rules were loaded again: %v", logged.All())
	}
	_ = l.load(yaml("domain: ["), nil)
	_ = l.load(files, nil)
	if l.Rules() == first || logged.FilterMessage("rules loaded").Len() != 2 {
		t.Errorf("the rules were not loaded after the fault: %v", logged.All())
	}
}

// Without rules the error names the remedy, and the log does if the server starts all the same.
func TestMissingRulesNameTheRemedy(t *testing.T) {
	core, logged := observer.New(zap.InfoLevel)
	o := Options{
		Path: filepath.Join(t.TempDir(), "none"), Remedy: "set the path", Log: zap.New(core), Loaded: func(*descriptors.Rules, error) {},
	}
	if _, err := Open(o); !errors.Is(err, ErrNoRules) || !strings.Contains(err.Error(), "(set the path)") {
		t.Errorf("%v, want ErrNoRules with the remedy", err)
	}
	o.MayStartWithoutRules = true
	if _, err := Open(o); err != nil {
		t.Fatal(err)
	}
	if lines := logged.FilterMessage("rules not loaded").All(); len(lines) != 1 || !strings.Contains(fmt.Sprint(lines[0].ContextMap()), "(set the path)") {
		t.Errorf("logged %v, want the remedy", lines)
	}
}

// A candidate leaves with its folder, and with the last file of its folder. A file that cannot be
// read is a fault.
func TestCandidateStaysUntilItsFilesAreMissing(t *testing.T) {
	l, logged, _ := opened(t)
	dir := filepath.Join(t.TempDir(), "candidate")
	must.Succeed(t, os.Mkdir(dir, 0o755))
	file, link := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "link.yaml")
	must.Write(t, file, rulesText)
	var candidate *descriptors.Rules
	use := func(rules *descriptors.Rules) bool { candidate = rules; return true }
	c := l.OpenCandidateFile(dir, use, l.log)
	reread := func(what string, stays bool) {
		t.Helper()
		logged.TakeAll()
		c.load(c.file.Read())
		if (candidate != nil) != stays || c.State().Err == nil {
			t.Errorf("%s: candidate %v, error %v, log %v; want the candidate to stay: %v", what, candidate, c.State().Err, logged.All(), stays)
		}
	}
	must.Succeed(t, os.Symlink("nowhere", link))
	reread("a dangling link", true)
	must.Succeed(t, os.Remove(link))
	must.Succeed(t, os.Remove(file))
	reread("an empty folder", false)
	must.Write(t, file, rulesText)
	if c.load(c.file.Read()); candidate == nil {
		t.Fatal("the candidate did not return")
	}
	must.Succeed(t, os.RemoveAll(dir))
	reread("no folder", false)
}
