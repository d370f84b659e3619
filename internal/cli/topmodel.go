package cli

import (
	"context"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/weir-rls/weir/internal/terminal"
	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/admin/client"
)

// A topModel is the screen of weir top.
type topModel struct {
	top  *Top
	conn *client.Client
	ctx  context.Context // bubbletea calls the methods of a model without a context

	sortBy        string
	width, height int // the terminal's size; 0: not known yet
	found         api.Top
	fetchedAt     time.Time // when found was fetched; zero: nothing yet
	err           error     // the last fetch's error
	failures      int
	next          time.Duration // the wait before the next fetch
	generation    int           // a tick of an older generation is of no use
}

type (
	fetched struct {
		top        api.Top
		err        error
		generation int
	}
	tick struct{ generation int }
)

// Init implements [tea.Model].
func (m topModel) Init() tea.Cmd { return m.fetch() }

// fetch returns a command that asks the server.
func (m topModel) fetch() tea.Cmd {
	by, generation := m.sortBy, m.generation
	return func() tea.Msg {
		top, err := m.top.fetch(m.ctx, m.conn, by)
		return fetched{top, err, generation}
	}
}

// Update implements [tea.Model].
func (m topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		return m.pressed(msg.String())
	case tick:
		if msg.generation == m.generation {
			return m, m.fetch()
		}
	case fetched:
		if msg.generation == m.generation {
			return m.received(msg)
		}
	}
	return m, nil
}

func (m topModel) pressed(key string) (tea.Model, tea.Cmd) {
	by := m.sortBy
	switch key {
	case "q", "esc", "ctrl+c":
		return m, tea.Quit
	case "h":
		by = "hits"
	case "d":
		by = "denied"
	case "tab":
		by = map[string]string{"hits": "denied", "denied": "hits"}[by]
	}
	if by == m.sortBy {
		return m, nil
	}
	m.sortBy, m.fetchedAt = by, time.Time{}
	m.generation++
	return m, m.fetch()
}

func (m topModel) received(f fetched) (tea.Model, tea.Cmd) {
	m.err, m.next = f.err, m.top.Interval
	switch {
	case isRejected(f.err):
		return m, tea.Quit
	case f.err != nil:
		m.next = max(m.next, retries.Wait(m.failures))
		m.failures++
	default:
		m.found, m.fetchedAt, m.failures = f.top, time.Now(), 0
	}
	generation := m.generation
	return m, tea.Tick(m.next, func(time.Time) tea.Msg { return tick{generation} })
}

var (
	bold  = lipgloss.NewStyle().Bold(true)
	faint = lipgloss.NewStyle().Faint(true)
	red   = lipgloss.NewStyle().Foreground(lipgloss.Red)
)

// View implements [tea.Model].
func (m topModel) View() tea.View {
	view := tea.NewView(strings.Join(m.lines(), "\n"))
	view.AltScreen = true
	return view
}

// lines returns the screen. No line is wider than the terminal, and there are no more than fit.
func (m topModel) lines() []string {
	lines := []string{bold.Render("weir top") + "  " + terminal.Printable(m.top.Server), m.state()}
	height := max(m.height, 5)
	if m.height == 0 {
		height = 24
	}
	help := faint.Render("q quit   h hits   d denied")
	if !m.fetchedAt.IsZero() {
		table := aligned(rows(&m.found, m.fetchedAt))
		for i, line := range table[:min(len(table), height-3)] {
			if i == 0 {
				line = bold.Render(line)
			}
			lines = append(lines, line)
		}
	}
	lines = append(lines, help)
	if m.width > 0 {
		for i := range lines {
			lines[i] = ansi.Truncate(lines[i], m.width, "…")
		}
	}
	return lines
}

// state returns the age of the counts, and the error of the last call if there is one.
func (m topModel) state() string {
	switch {
	case m.err != nil:
		return red.Render(retryText(m.err, m.next))
	case m.fetchedAt.IsZero():
		return "waiting for the server"
	}
	return summary(&m.found, m.sortBy, m.fetchedAt)
}

// aligned returns rows as lines: numbers are aligned to the right, texts to the left.
func aligned(all []row) []string {
	var widths [len(header)]int
	for _, r := range all {
		for i, text := range r {
			widths[i] = max(widths[i], lipgloss.Width(text))
		}
	}
	lines := make([]string, len(all))
	for i, r := range all {
		for j, text := range r {
			pad := strings.Repeat(" ", widths[j]-lipgloss.Width(text))
			switch {
			case j < 3:
				lines[i] += pad + text + "  "
			case j < len(header)-1:
				lines[i] += text + pad + "  "
			default:
				lines[i] += text
			}
		}
	}
	return lines
}
