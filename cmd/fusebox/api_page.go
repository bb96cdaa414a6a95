package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// apiCommand prints what the planes take and answer, as the server that was
// built with it does.
func apiCommand() *cobra.Command {
	var operator, page bool
	cmd := &cobra.Command{
		Use:   "api",
		Short: "Print the decision API as OpenAPI 3.1, or as a page to read",
		Long: `Print the OpenAPI 3.1 document of the decision API: what a running server answers
to GET /v1/openapi.json, without one. With --operator it is the operator plane's.

Exit status: 0.`,
		Example: `  fusebox api > openapi.json
  fusebox api --operator
  fusebox api --markdown             both planes, as a page`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&operator, "operator", false, "the operator plane's")
	cmd.Flags().BoolVar(&page, "markdown", false, "print a page of both planes in Markdown")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s := &server{meter: newMeter(), limits: &rateLimits{}} // it is only described
		if page {
			return writeAPIPage(cmd.OutOrStdout(), s)
		}
		p := decisionAPI()
		if operator {
			p = operatorAPI()
		}
		doc, err := openAPIDocument(p, p.endpoints(s))
		if err != nil {
			return err
		}
		return writeJSON(cmd.OutOrStdout(), doc)
	}
	return cmd
}

const apiPageHead = `# The APIs, request by request

Printed by ` + "`fusebox api --markdown`" + ` (` + "`make api`" + `) from the list that the server is built of; a test keeps it current. What the
requests mean together stands in [Operating fusebox](README.md#the-decision-api). Members of an answer that may be absent are
marked *optional*; more may be added while ` + "`v`" + ` is 1. Every problem is ` + "`{\"error\":{\"code\",\"field\",\"message\",\"receipt\",\"retry_after_ms\"}}`" + `.
`

func writeAPIPage(w io.Writer, s *server) error {
	var b strings.Builder
	b.WriteString(apiPageHead)
	documents := map[string]object{}
	for _, p := range []plane{decisionAPI(), operatorAPI()} {
		endpoints := p.endpoints(s)
		doc, err := openAPIDocument(p, endpoints)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "\n## The %s\n", strings.TrimPrefix(p.title, "fusebox "))
		for i := range endpoints {
			writeEndpoint(&b, &endpoints[i])
		}
		for name, schema := range doc["components"].(object)["schemas"].(object) {
			documents[name] = schema.(object)
		}
	}
	b.WriteString("\n## Documents\n")
	for _, name := range slices.Sorted(maps.Keys(documents)) {
		fmt.Fprintf(&b, "\n### %s\n", name)
		writeMembers(&b, documents[name], "")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeEndpoint(b *strings.Builder, e *endpoint) {
	fmt.Fprintf(b, "\n### %s %s\n\n%s\n", e.method, e.path, strings.Replace(e.summary+".", "?.", "?", 1))
	if e.may != nil {
		fmt.Fprintf(b, "\nFor the roles %s.\n", rolesOf(e.may))
	}
	if e.query != nil {
		fmt.Fprintf(b, "\nQuery: `%s`.\n", strings.Join(e.query, "`, `"))
	}
	if e.request != nil {
		writeMembers(b, e.request, "body")
	}
	b.WriteString("\n| status | means |\n|---|---|\n")
	responses := e.describe()["responses"].(object)
	for _, status := range slices.Sorted(maps.Keys(e.answers)) {
		fmt.Fprintf(b, "| %d | %s |\n", status, cell(e.answers[status].says))
	}
	for _, status := range slices.Sorted(maps.Keys(e.answers)) {
		content, ok := responses[fmt.Sprint(status)].(object)["content"].(object)
		if status == 200 && ok {
			writeMembers(b, content["application/json"].(object)["schema"].(object), "answer")
		}
	}
}

// writeMembers prints the members of an object as a table.
func writeMembers(b *strings.Builder, schema object, what string) {
	schema = asRead(schema)
	properties, ok := schema["properties"].(object)
	if !ok || len(properties) == 0 {
		return
	}
	fmt.Fprintf(b, "\n| %s | type | |\n|---|---|---|\n", cell(strings.TrimSpace(what+" member")))
	required := texts(schema["required"])
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		m := properties[name].(object)
		says, _ := m["description"].(string)
		if what != "" && !slices.Contains(required, name) {
			says = strings.TrimSuffix("*optional* "+says, " ")
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", name, cell(typeOf(m)), cell(says))
	}
}

// typeOf says a schema in a few words.
func typeOf(m object) string {
	switch {
	case m["$ref"] != nil:
		name := m["$ref"].(string)
		name = name[strings.LastIndexByte(name, '/')+1:]
		return "[" + name + "](#" + strings.NewReplacer(".", "").Replace(name) + ")"
	case m["const"] != nil:
		return fmt.Sprint("`", m["const"], "`")
	case m["enum"] != nil:
		return "`" + strings.Join(texts(m["enum"]), "` `") + "`"
	case m["anyOf"] != nil:
		return typeNames(m["anyOf"])
	case m["oneOf"] != nil:
		return typeNames(m["oneOf"])
	case m["allOf"] != nil:
		return typeNames(m["allOf"])
	}
	if list, ok := m["type"].([]any); ok {
		return strings.Join(texts(list), " or ")
	}
	switch m["type"] {
	case "array":
		items, _ := m["items"].(object)
		return "list of " + typeOf(items)
	case "object":
		if properties, ok := m["properties"].(object); ok {
			return "{" + strings.Join(slices.Sorted(maps.Keys(properties)), ", ") + "}"
		}
		return "object"
	case "string":
		if m["format"] == "date-time" {
			return "time"
		}
		return "text"
	case "null":
		return "null"
	case nil:
		return "any"
	}
	return fmt.Sprint(m["type"])
}

// typeNames says that one of several schemas holds.
func typeNames(v any) string {
	var names []string
	for _, one := range v.([]any) {
		names = append(names, typeOf(one.(object)))
	}
	return strings.Join(names, " or ")
}

// asRead is a schema as a reader of its JSON has it.
func asRead(schema object) (out object) {
	b, err := json.Marshal(schema)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		panic("fusebox: a schema of ours does not encode: " + err.Error())
	}
	return out
}

func texts(v any) (out []string) {
	list, _ := v.([]any)
	for _, x := range list {
		switch x {
		case nil, "": // absent, which every member of a document may be
		case "string":
			out = append(out, "text")
		default:
			out = append(out, fmt.Sprint(x))
		}
	}
	return out
}

func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }
