package main

import (
	"regexp"
	"strings"
)

// tomlFile is a TOML file cut at its tables, so that single settings can be
// changed and everything else, comments too, stays as it was written.
type tomlFile struct {
	blocks []*tomlBlock
	tail   string // comments after the last table
}

type tomlBlock struct {
	lead   string // blank lines and comments above the header
	header string // "[[breaker]]"
	body   string // up to the last setting
}

var tomlHeader = regexp.MustCompile(`^\[\[?[A-Za-z0-9_.]+\]\]?`)

func splitTOML(text string) *tomlFile {
	t := &tomlFile{}
	var lead strings.Builder
	for line := range strings.Lines(text) {
		bare := strings.TrimSpace(line)
		switch {
		case tomlHeader.MatchString(bare):
			t.blocks = append(t.blocks, &tomlBlock{lead: lead.String(), header: tomlHeader.FindString(bare), body: line})
			lead.Reset()
		case bare == "" || strings.HasPrefix(bare, "#") || len(t.blocks) == 0:
			lead.WriteString(line)
		default:
			b := t.blocks[len(t.blocks)-1]
			b.body += lead.String() + line
			lead.Reset()
		}
	}
	t.tail = lead.String()
	return t
}

func (t *tomlFile) String() string {
	var b strings.Builder
	for _, k := range t.blocks {
		b.WriteString(k.lead + k.body)
	}
	return b.String() + t.tail
}

// all are the tables of one header.
func (t *tomlFile) all(header string) (out []*tomlBlock) {
	for _, b := range t.blocks {
		if b.header == header {
			out = append(out, b)
		}
	}
	return out
}

// drop takes tables away, with the comments above them.
func (t *tomlFile) drop(header string) {
	for _, b := range t.all(header) {
		b.lead, b.body, b.header = "", "", ""
	}
}

// replace puts a text in the place of the first of these tables, and takes all
// of them away.
func (t *tomlFile) replace(header, text string) {
	found := t.all(header)
	t.drop(header)
	if len(found) > 0 {
		found[0].body = text
	}
}

// after puts a text behind the last of these tables.
func (t *tomlFile) after(header, text string) {
	if found := t.all(header); len(found) > 0 {
		found[len(found)-1].body += text
	}
}

func (b *tomlBlock) has(text string) bool { return strings.Contains(b.body, text) }

// set replaces the line of a key, or adds one at the end of the table.
func (b *tomlBlock) set(key, line string) {
	re := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(key) + ` = .*$`)
	if re.MatchString(b.body) {
		b.body = re.ReplaceAllLiteralString(b.body, line)
		return
	}
	b.body += line + "\n"
}
