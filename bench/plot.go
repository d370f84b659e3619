package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

const (
	plotWidth = 720
	leftEdge  = 170
	rightEdge = plotWidth - 60
	barHeight = 22
)

var colors = []string{"#3b6ea5", "#d08c2f", "#5a9367", "#a5483b"}

// A bar is a line of a bar chart, stacked from its parts.
type bar struct {
	name  string
	parts []float64
}

// bars draws one bar for each name. parts names the parts of a bar.
func bars(title string, all []bar, parts ...string) string {
	maxTotal := 0.0
	for _, b := range all {
		maxTotal = max(maxTotal, total(b.parts))
	}
	s := newSVG(title, 60+barHeight*len(all)+10)
	for i, name := range parts {
		x := leftEdge + 110*i
		s.rect(float64(x), 34, 10, 10, colors[i])
		s.text(x+15, 43, "start", name)
	}
	for i, b := range all {
		y, x := 54+barHeight*i, float64(leftEdge)
		s.text(leftEdge-8, y+14, "end", b.name)
		for k, part := range b.parts {
			w := part / maxTotal * (rightEdge - leftEdge)
			s.rect(x, y+2, w, barHeight-6, colors[k])
			x += w
		}
		s.text(int(x)+6, y+14, "start", short(total(b.parts)))
	}
	return s.end()
}

func total(parts []float64) (sum float64) {
	for _, p := range parts {
		sum += p
	}
	return sum
}

// A line is a series of a line chart.
type line struct {
	name string
	x, y []float64
}

// lines draws y, from 0, over the logarithm of x.
func lines(title, xName string, all []line) string {
	const top, bottom = 60, 300
	minX, maxX, maxY := math.Inf(1), math.Inf(-1), 0.0
	for _, l := range all {
		for i := range l.x {
			minX, maxX, maxY = min(minX, l.x[i]), max(maxX, l.x[i]), max(maxY, l.y[i])
		}
	}
	at := func(x, y float64) (float64, float64) {
		return 60 + (rightEdge-160)*math.Log(x/minX)/max(math.Log(maxX/minX), 1e-9), bottom - (bottom-top)*y/maxY
	}
	s := newSVG(title, bottom+45)
	for _, part := range []float64{0, 0.5, 1} {
		_, y := at(minX, maxY*part)
		s.rule(60, y, rightEdge-100, y)
		s.text(52, int(y)+4, "end", short(maxY*part))
	}
	for k, l := range all {
		var points []string
		for i := range l.x {
			x, y := at(l.x[i], l.y[i])
			points = append(points, fmt.Sprintf("%.1f,%.1f", x, y))
			if k == 0 {
				s.text(int(x), bottom+18, "middle", fmt.Sprintf("%g", l.x[i]))
			}
		}
		s.polyline(points, colors[k])
		x, y := at(l.x[len(l.x)-1], l.y[len(l.y)-1])
		s.text(int(x)+6, int(y)+4, "start", l.name)
	}
	s.text((60+rightEdge-100)/2, bottom+36, "middle", xName)
	return s.end()
}

// An svg builds a picture.
type svg struct{ strings.Builder }

func newSVG(title string, height int) *svg {
	s := &svg{}
	fmt.Fprintf(s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, height)
	fmt.Fprintf(s, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", plotWidth, height)
	fmt.Fprintf(s, `<text x="12" y="22" font-size="14" font-weight="bold">%s</text>`+"\n", html.EscapeString(title))
	return s
}

func (s *svg) text(x, y int, anchor, text string) {
	fmt.Fprintf(s, `<text x="%d" y="%d" text-anchor="%s">%s</text>`+"\n", x, y, anchor, html.EscapeString(text))
}

func (s *svg) rect(x float64, y int, w float64, h int, color string) {
	fmt.Fprintf(s, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", x, y, w, h, color)
}

func (s *svg) rule(x1, y1, x2, y2 float64) {
	fmt.Fprintf(s, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#ddd"/>`+"\n", x1, y1, x2, y2)
}

func (s *svg) polyline(points []string, color string) {
	fmt.Fprintf(s, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(points, " "), color)
}

func (s *svg) end() string { return s.String() + "</svg>\n" }
