package statsd

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A dialect formats lines of statsd (name:value|type) or dogstatsd, which appends tags.
type dialect struct {
	suffix     string   // ends every name in statsd: the tags as envoyproxy/ratelimit writes them, .__key=value
	tags       []string // end every line in dogstatsd
	mogrifiers []Mogrifier
}

func newDialect(to *Destination) dialect {
	d := dialect{tags: slices.Clone(to.DogTags), mogrifiers: to.Mogrifiers}
	for _, key := range slices.Sorted(maps.Keys(to.Tags)) {
		value := tagValue.Replace(to.Tags[key])
		switch {
		case key == "" || value == "":
		case to.Dog:
			d.tags = append(d.tags, key+":"+value)
		default:
			d.suffix += ".__" + key + "=" + value
		}
	}
	return d
}

var tagValue = strings.NewReplacer(".", "_", ":", "_", "|", "_", "\n", "_")

func (d *dialect) counter(name string, n uint64) string { return d.line(name, fmt.Sprintf("%d|c", n)) }

// time returns the line of a duration, in milliseconds, with a sample rate.
func (d *dialect) time(name string, took time.Duration, rate float64) string {
	value := strconv.FormatFloat(float64(took.Microseconds())/1000, 'f', -1, 64) + "|ms"
	if rate < 1 {
		value += fmt.Sprintf("|@%f", rate)
	}
	return d.line(name, value)
}

func (d *dialect) line(name, value string) string {
	name, tags := mogrify(d.mogrifiers, name)
	line := name + d.suffix + ":" + value
	if tags = slices.Concat(d.tags, tags); len(tags) > 0 {
		line += "|#" + strings.Join(tags, ",")
	}
	return line + "\n"
}

// DogTags returns the tags of Datadog's clients: the pod, and those of unified service tagging.
func DogTags(getenv func(string) string) []string {
	var tags []string
	for _, pair := range [][2]string{
		{"DD_ENTITY_ID", "dd.internal.entity_id"}, {"DD_ENV", "env"}, {"DD_SERVICE", "service"}, {"DD_VERSION", "version"},
	} {
		if value := getenv(pair[0]); value != "" {
			tags = append(tags, pair[1]+":"+strings.NewReplacer("|", "_", ",", "_", "\n", "_").Replace(value))
		}
	}
	return tags
}
