package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/explain"
	"github.com/weir-rls/weir/pkg/rls"
)

// Explain reports the limits of a request and how they were found. It charges nothing.
type Explain struct {
	rulesFlags `embed:""`
	KeySecret  string `env:"KEY_HASH_SECRET" hidden:"" help:"Print the hashes of keys."`

	Domain  string `help:"The domain of the request. Optional if the rules have only one."`
	Request string `placeholder:"FILE|-" help:"A RateLimitRequest in JSON, instead of descriptors. - is standard input."`
	Output  string `short:"o" enum:"text,json" default:"text" help:"The format of the output: text or json."`

	Live string `placeholder:"URL" help:"Explain with the rules of a running server, and add the state of each limit. URL is the address of its admin API, such as http://127.0.0.1:6071."`

	adminCredentials `embed:""`
	envoyFlags       `embed:""`
	receiptFlags     `embed:""`

	Descriptors []string `arg:"" optional:"" name:"descriptor" help:"Descriptors such as user_id=42,action=login. Escape a comma in a value with a backslash."`
}

// Help returns the text after the flags in the command's help.
func (*Explain) Help() string {
	return `Examples:
  weir explain --config rules.yaml user_id=42,action=login
  weir explain --config rules.yaml --domain shop user_id=42 ip=192.0.2.1
  weir explain --config rules.yaml --request request.json -o json
  weir explain --config rules.yaml --envoy envoy.yaml --header 'x-user-id: 42' --path /login --method POST
  weir explain --live http://127.0.0.1:6071 --token-file token user_id=42,action=login
  weir explain --receipt TEXT --keys receipt-keys --config rules.yaml user_id=42,action=login

The exit code is 0 if every descriptor is limited, unlimited, replaced, or ends a lease. It is 1 if a descriptor has an invalid lease id or no limit. A descriptor that a rule without a limit exempts has no limit. It is 2 after an error.`
}

// Validate reports missing and conflicting arguments.
func (e *Explain) Validate() error {
	others := []input{{"the request", []string{e.Request}}, {"the Envoy configuration", []string{e.Envoy}}}
	if err := e.checkStdin(e.Config, others...); err != nil {
		return err
	}
	if e.Receipt != "" {
		return e.validateReceipt()
	}
	switch {
	case len(e.Config) == 0 && e.Live == "":
		return errors.New("needs --config with the rules, or --live with the address of a server, for example: " +
			"weir explain --config rules.yaml user_id=42")
	case len(e.Config) > 0 && e.Live != "":
		return errors.New("--config cannot be used with --live, which explains by the rules of the server: remove one of them")
	case e.Envoy != "":
		return e.validateEnvoy()
	case e.envoyFlags.isSet():
		return errors.New("--header, --path and the other flags of a request need --envoy with the Envoy configuration")
	case len(e.Descriptors) == 0 && e.Request == "":
		return errors.New("needs a descriptor, for example: weir explain --config rules.yaml user_id=42,action=login")
	case len(e.Descriptors) > 0 && e.Request != "":
		return errors.New("--request cannot be used with descriptors: write them in the request")
	case e.Live != "" && e.Request != "" && e.Domain != "":
		return errors.New("--domain cannot be used with --live and --request: write the domain in the request")
	}
	return nil
}

// Run prints the explanation. It returns [Failed] if a descriptor has no limit.
func (e *Explain) Run(ctx context.Context, streams Streams) error {
	if e.Receipt != "" {
		return e.openReceipt(streams)
	}
	explanation, err := e.explanation(ctx, streams)
	if err == nil {
		err = explanation.Err()
	}
	if err != nil {
		return err
	}
	err = printResult(streams.Out, e.Output, explanation, func() string { return explanation.Text(colored(streams.Out)) })
	if err == nil && !explanation.Covered() {
		return Failed
	}
	return err
}

func (e *Explain) explanation(ctx context.Context, streams Streams) (*explain.Explanation, error) {
	if e.Live != "" {
		return e.live(ctx, streams.In)
	}
	rules, err := e.load(streams.In)
	if err != nil {
		return nil, err
	}
	options := explain.Options{Decide: decide.Options{CalendarMonths: e.Months}, KeyHashSecret: []byte(e.KeySecret)}
	if e.Envoy != "" {
		return e.explainByEnvoy(options, rules, streams.In)
	}
	request, err := e.request(rules, streams.In)
	if err != nil {
		return nil, err
	}
	return explain.ForRequest(options, rules, request), nil
}

// request returns the request that the arguments describe. The domain is optional if the rules have
// only one.
func (e *Explain) request(rules *descriptors.Rules, stdin io.Reader) (*decide.Request, error) {
	request := &decide.Request{}
	if e.Request != "" {
		name, body, err := e.body(stdin)
		if err != nil {
			return nil, err
		}
		request, err = rls.ParseRequest(body)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	all, err := parseDescriptors(e.Descriptors)
	if err != nil {
		return nil, err
	}
	for _, entries := range all {
		request.Descriptors = append(request.Descriptors, decide.Descriptor{Entries: entries, Hits: 1})
	}
	request.Domain, err = e.requestDomain(request.Domain, rules)
	if err != nil {
		return nil, err
	}
	return request, nil
}

// body reads the request in JSON, and returns the file's name.
func (e *Explain) body(stdin io.Reader) (name string, body []byte, err error) {
	return readNamed(e.Request, stdin, rls.MaxBodyBytes, "write fewer descriptors")
}

// requestDomain returns the domain of the request, of the flag, or of the rules if they have only
// one.
func (e *Explain) requestDomain(inRequest string, rules *descriptors.Rules) (string, error) {
	switch {
	case inRequest != "" && e.Domain != "" && inRequest != e.Domain:
		return "", fmt.Errorf("the request has the domain %q, and --domain is %q: remove one", inRequest, e.Domain)
	case inRequest != "":
		return inRequest, nil
	case e.Domain != "":
		return e.Domain, nil
	}
	switch names := rules.DomainNames(); len(names) {
	case 0:
		return "", nil
	case 1:
		return names[0], nil
	}
	return "", fmt.Errorf("the rules have several domains: set --domain to one of %s", explain.DomainNames(rules))
}

// parseDescriptors parses each text as a descriptor.
func parseDescriptors(texts []string) ([][]descriptors.Entry, error) {
	var all [][]descriptors.Entry
	var errs []error
	for _, text := range texts {
		entries, err := descriptors.ParseEntries(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("descriptor %q: %w", text, err))
		}
		all = append(all, entries)
	}
	return all, errors.Join(errs...)
}

// live gets the explanation, and the state of each limit, from a running server.
func (e *Explain) live(ctx context.Context, stdin io.Reader) (*explain.Explanation, error) {
	c, err := e.clientOf("--live", e.Live)
	if err != nil {
		return nil, err
	}
	sent := api.ExplainRequest{Live: true}
	if e.Request != "" { // the server reports its faults
		name, body, err := e.body(stdin)
		if err != nil {
			return nil, err
		}
		if !json.Valid(body) {
			_, err := rls.ParseRequest(body)
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		sent.Request = body
	} else {
		all, err := parseDescriptors(e.Descriptors)
		if err != nil {
			return nil, err
		}
		for _, entries := range all {
			sent.Descriptors = append(sent.Descriptors, explain.EntriesOf(entries))
		}
		key := adminKey{Domain: e.Domain}
		sent.Domain, err = key.domain(ctx, c)
		if err != nil {
			return nil, err
		}
	}
	explanation, err := c.Explain(ctx, sent)
	if err != nil {
		return nil, err
	}
	return &explanation, nil
}
