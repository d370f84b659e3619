package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rls/weir/internal/backoff"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/internal/tlsfiles"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/descriptors/sources"
	"github.com/weir-rls/weir/pkg/descriptors/sources/xds"
)

// ruleSource keeps the rules of the moment in step with where they come from, and with the overlay.
type ruleSource struct {
	from    string
	live    atomic.Pointer[descriptors.Rules]
	log     *zap.Logger
	metrics *telemetry.Metrics
	there   func() // rules have come
	// replaced is called when rules have taken the place of others; nil until there is somebody to tell.
	replaced func()

	file    *sources.File // nil where rules come by xDS
	xds     *xds.Source
	overlay *sources.File // nil without one

	mu      sync.Mutex
	options rulesfile.Options
	files   []rulesfile.File // that the rules were made of, or last could not be
	// warnings are those of the rules of the moment.
	warnings rulesfile.Faults
	said     string // why they last could not, lest it be said again and again
}

// newRuleSource reads the rules that lie in files. Rules that cannot be read, or have faults, are an error, unless the
// settings say to start without. Those that come by xDS come later.
func newRuleSource(
	s *settings.Serve, log *zap.Logger, metrics *telemetry.Metrics, there func(),
) (*ruleSource, error) {
	r := &ruleSource{from: s.Path(), log: log, metrics: metrics, there: there}
	r.options.MergeDomains = s.MergeDomainConfig
	if s.Overlay != "" {
		r.overlay = &sources.File{Path: s.Overlay}
		files, err := r.overlay.Read()
		if errors.Is(err, sources.ErrNoFile) {
			log.Warn("no overlay yet: every rule counts as it says itself", zap.Error(err))
			err = nil
		}
		if err := r.readOverlay(files, err); err != nil {
			return nil, err
		}
	}
	if s.ForceStartWithoutInitialConfig && !s.HealthyWithAtLeastOneConfigLoaded {
		there()
	}
	if s.ConfigType == settings.FromXDS {
		r.from = s.ServerURL
		var err error
		r.xds, err = newXDS(&s.XDS, log)
		return r, err
	}
	r.file = &sources.File{Path: s.Path()}
	files, err := r.file.Read()
	if err != nil {
		err = fmt.Errorf("no rules: %w (--config or CONFIG_PATH names the file or folder)", err)
	}
	switch err = r.take(files, err); {
	case err == nil:
		r.loaded()
	case s.ForceStartWithoutInitialConfig:
		r.failed(err)
	default:
		return nil, err
	}
	return r, nil
}

func newXDS(s *settings.XDS, log *zap.Logger) (*xds.Source, error) {
	metadata, err := s.Metadata()
	if err != nil {
		return nil, fmt.Errorf("CONFIG_GRPC_XDS_NODE_METADATA: %w", err)
	}
	headers, err := s.Headers()
	if err != nil {
		return nil, fmt.Errorf("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS: %w", err)
	}
	source := &xds.Source{
		Server: s.ServerURL, NodeID: s.NodeID, NodeMetadata: metadata, Headers: headers,
		MaxMessageSize: s.MaxMessageSize,
		Backoff:        backoff.Backoff{Initial: s.BackoffInitial, Max: s.BackoffMax},
		Notify: func(e xds.Event) {
			fields := []zap.Field{zap.String("server", s.ServerURL)}
			switch e.Kind {
			case xds.Connected:
				log.Info("xds: connected", fields...)
			case xds.Disconnected:
				if e.Err != nil {
					log.Error("xds: not connected, rules stay as they are", append(fields, zap.Error(e.Err), zap.Duration("next try in", e.Retry))...)
				}
			case xds.Accepted, xds.Unchanged:
				log.Debug("xds: "+e.Kind.String(), append(fields, zap.String("version", e.Version))...)
			case xds.Rejected:
				log.Debug("xds: rejected", append(fields, zap.String("version", e.Version), zap.Error(e.Err))...)
			}
		},
	}
	if s.BackoffJitter {
		source.Backoff.Jitter = 1
	}
	if s.UseTLS {
		files := tlsfiles.Client{Cert: s.ClientCert, Key: s.ClientKey, CA: s.ServerCA, ServerName: s.ServerSAN}
		if _, err := files.Config(); err != nil {
			return nil, fmt.Errorf("CONFIG_GRPC_XDS_SERVER_USE_TLS: %w", err)
		}
		source.TLS = files.Config
	}
	return source, nil
}

// load takes rules that have come, or why they have not, and tells what became of them. The error is of rules with
// faults, which change nothing.
func (r *ruleSource) load(files []rulesfile.File, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err = r.take(files, err); err != nil {
		r.failed(err)
		return err
	}
	r.loaded()
	return nil
}

func (r *ruleSource) take(files []rulesfile.File, err error) error {
	if err != nil {
		return err
	}
	r.files = files
	rules, warnings, err := rulesfile.ParseWith(r.options, files...)
	if err != nil {
		return fmt.Errorf("the rules of %s have faults:\n%w", r.from, err)
	}
	r.live.Store(rules)
	r.warnings = warnings
	return nil
}

// readOverlay takes an overlay; one with faults changes nothing.
func (r *ruleSource) readOverlay(files []rulesfile.File, err error) error {
	var overlay *rulesfile.Overlay
	if err == nil {
		overlay, err = rulesfile.ParseOverlay(files...)
	}
	if err != nil {
		return fmt.Errorf("the overlay %s: %w", r.overlay.Path, err)
	}
	r.options.Overlay = overlay
	return nil
}

func (r *ruleSource) loaded() {
	r.said = ""
	if r.replaced != nil {
		r.replaced()
	}
	rules := r.live.Load()
	for _, w := range r.warnings {
		r.log.Warn("suspicious rule", zap.Stringer("at", w))
	}
	r.metrics.Loaded(rules, time.Now(), nil)
	domains, n := rules.Counts()
	r.log.Info("rules loaded", zap.Int("domains", domains), zap.Int("rules", n))
	r.there()
}

func (r *ruleSource) failed(err error) {
	r.metrics.Loaded(nil, time.Now(), err)
	what := "rules not loaded, the old ones stay"
	if r.live.Load() == nil {
		what = "rules not loaded, there are none"
	}
	if text := brief(err); text != r.said {
		r.said = text
		r.log.Error(what, zap.String("from", r.from), zap.String("error", text))
	}
}

// watch takes rules, and the overlay, whenever they change, until ctx ends.
func (r *ruleSource) watch(ctx context.Context, reload <-chan os.Signal) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		for {
			select {
			case <-reload:
				r.log.Info("SIGHUP: reading the rules again")
				for _, f := range []*sources.File{r.file, r.overlay} {
					if f != nil {
						f.Reload()
					}
				}
			case <-ctx.Done():
				return nil
			}
		}
	})
	if r.overlay != nil {
		group.Go(func() error { return r.overlay.Watch(ctx, r.overlayChanged) })
	}
	group.Go(func() error {
		if r.xds != nil {
			return r.xds.Watch(ctx, func(files []rulesfile.File) error { return r.load(files, nil) })
		}
		return r.file.Watch(ctx, func(files []rulesfile.File, err error) { _ = r.load(files, err) })
	})
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return named("rules", err)
	}
	return nil
}

// overlayChanged reads the rules again under another overlay.
func (r *ruleSource) overlayChanged(files []rulesfile.File, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.options
	if err = r.readOverlay(files, err); err == nil && r.files != nil {
		err = r.take(r.files, nil)
	}
	if err != nil {
		r.options = before
		r.failed(err)
		return
	}
	if r.files != nil {
		r.loaded()
	}
}

// brief is an error for the log, which tells the first of many faults.
func brief(err error) string {
	const most = 20
	var faults rulesfile.Faults
	if !errors.As(err, &faults) || len(faults) <= most {
		return err.Error()
	}
	return fmt.Sprintf("%v\nand %d more: weir check prints them all", faults[:most], len(faults)-most)
}
