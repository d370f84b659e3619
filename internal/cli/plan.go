package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/weir-rls/weir/internal/offline/sizing"
	"github.com/weir-rls/weir/internal/terminal"
)

// Plan computes the size of a deployment: local limits, memory, calls to Redis and over-admission.
type Plan struct {
	rulesFlags  `embed:""`
	Limit       int64         `placeholder:"N" help:"A limit that the replicas share, in requests per window: print the local limit that each replica needs."`
	Replicas    int64         `env:"REPLICAS" default:"1" placeholder:"N" help:"The number of replicas."`
	Probability float64       `short:"p" env:"LOCAL_FALSE_LIMIT_PROBABILITY" default:"0.001" placeholder:"P" help:"The highest accepted probability that a replica denies a client that is within its limit."`
	Users       int64         `placeholder:"N" help:"With --config: the number of users that send a request during the lifetime of a key, about 1.25 windows. A rule for a key without a value has a counter for each user."`
	Rate        float64       `placeholder:"N" help:"With --config: the peak rate of all users together, in requests a second."`
	Values      []string      `placeholder:"KEY=N" help:"With --config: the number of values of a key that does not identify a user, such as action=20. May be repeated."`
	Lag         time.Duration `name:"replication-lag" default:"1s" placeholder:"DURATION" help:"With --config: how far a Redis replica is behind its master at a failover."`
	Output      string        `short:"o" enum:"text,json" default:"text" help:"The format of the output: text or json."`
}

// Help returns the text after the flags in the command's help.
func (*Plan) Help() string {
	return `Examples:
  weir plan --limit 1000 --replicas 100
  weir plan --limit 1000 --replicas 100 -p 0.0001 -o json
  weir plan --config rules.yaml --users 1000000 --rate 20000 --replicas 4
  weir plan --config rules.yaml --users 1000000 --values action=20

The exit code is 0, or 2 after an error. docs/plan.md describes every column.`
}

// Validate reports missing and conflicting arguments.
func (p *Plan) Validate() error {
	rules := len(p.Config) > 0
	switch {
	case p.Limit == 0 && !rules:
		return errors.New("needs --limit with the number of requests that all replicas share, or --config with rules and --users, for example: " +
			"weir plan --limit 1000 --replicas 100")
	case rules && p.Users == 0:
		return errors.New("--config needs --users with the number of users, for example: --users 100000")
	case !rules && (p.Users != 0 || p.Rate != 0 || len(p.Values) > 0):
		return errors.New("--users, --rate and --values need --config with the rules")
	}
	return p.checkStdin(p.Config)
}

// A planReport is the output of [Plan] as JSON.
type planReport struct {
	LocalLimit *sizing.LocalLimit `json:"local_limit,omitempty"`
	Plan       *sizing.Report     `json:"plan,omitempty"`
	Figures    *sizing.Measured   `json:"figures,omitempty"`
}

// Run prints the answers.
func (p *Plan) Run(streams Streams) error {
	answers, err := p.answers(streams.In)
	if err == nil {
		err = printResult(streams.Out, p.Output, answers, answers.text)
	}
	return err
}

func (p *Plan) answers(stdin io.Reader) (answers planReport, err error) {
	if p.Limit != 0 {
		answers.LocalLimit, err = sizing.Local(p.Limit, p.Replicas, p.Probability)
		if err != nil {
			return answers, err
		}
	}
	if len(p.Config) == 0 {
		return answers, nil
	}
	load := sizing.Load{Users: p.Users, Rate: p.Rate, Replicas: p.Replicas, Probability: p.Probability, Lag: p.Lag}
	load.Values, err = sizing.ParseValues(p.Values)
	if err != nil {
		return answers, fmt.Errorf("--values: %w", err)
	}
	rules, err := p.load(stdin)
	if err != nil {
		return answers, err
	}
	answers.Figures = sizing.Figures()
	answers.Plan, err = sizing.NewReport(rules, load)
	return answers, err
}

func (r *planReport) text() string {
	var texts []string
	if r.LocalLimit != nil {
		texts = append(texts, r.LocalLimit.Text())
	}
	if r.Plan != nil {
		texts = append(texts, r.Plan.Text())
	}
	return terminal.PrintableLines(strings.Join(texts, "\n"))
}
