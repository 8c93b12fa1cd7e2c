#include "text/jinja/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "support/files.h"
#include "text/value_json.h"

namespace carat::text::jinja {
namespace {

using testing::HasSubstr;

MarkedText rendered(std::string_view source, std::string_view variables = "{}", const Limits& limits = {}) {
  return Template::parse(source, limits).render(parse_json(variables, false, "variables").as_map());
}

std::string render(std::string_view source, std::string_view variables = "{}") {
  return rendered(source, variables).text();
}

std::string error_of(std::string_view source, std::string_view variables = "{}", const Limits& limits = {}) {
  try {
    const std::string text = rendered(source, variables, limits).text();
    ADD_FAILURE() << source << " rendered " << text.substr(0, 100);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// What @huggingface/jinja renders; the peer test text_chat.snippets checks that the file says so.
TEST(JinjaTemplate, RendersTheSnippetsAsThePeerDoes) {
  const auto path = carat::test::source_directory() / "tests/text/jinja_snippets.json";
  const auto snippets = nlohmann::ordered_json::parse(carat::test::read_text(path.string()));
  EXPECT_GE(snippets.size(), 50u);
  for (const auto& snippet : snippets) {
    const std::string source = snippet.at("source");
    EXPECT_EQ(render(source, snippet.at("variables").dump()), snippet.at("expected").get<std::string>()) << source;
  }
}

// Where the peer has not got it or gets it wrong, as Python's Jinja does it.
TEST(JinjaTemplate, FollowsPython) {
  EXPECT_EQ(render("{{ none }} {{ true }} {{ 1.0 }} {{ [1, 'a', none] }} {{ {'k': 1.5} }}"),
            "None True 1.0 [1, 'a', None] {'k': 1.5}");
  EXPECT_EQ(render("{{ ['it\\'s', 'a\"b', 'x\\ny'] }}"), "[\"it's\", 'a\"b', 'x\\ny']");
  EXPECT_EQ(render("{{ not [] }} {{ not {} }} {{ not '' }} {{ not 0 }}"), "True True True True");
  EXPECT_EQ(render("{% for i in [1, 2, 3] %}{{ i }}{% if i == 2 %}{% break %}{% endif %}{% endfor %}"), "12");
  EXPECT_EQ(render("{{ ['a', 'b'] | map('upper') | join }} {{ ['a', ''] | select | list | length }}"), "AB 1");
  EXPECT_EQ(render("{{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** -1 }} {{ 7.5 // 2 }} {{ (-1) ** 7 }}"), "-4 2 0.5 3.0 -1");
  EXPECT_EQ(
      render("{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ [1, {'a': 2}] == [1, {'a': 2}] }}"),
      "True False True True True");
  EXPECT_EQ(render("{% for c in 'a\u00e9\u65e5' %}{{ c }}.{% endfor %} {{ 'a\u00e9\u65e5'[::-1] }} {{ 'abc'[5:] }}"),
            "a.\u00e9.\u65e5. \u65e5\u00e9a ");
  EXPECT_EQ(render("{{ {'B': 1, 'a': 2, 'C': 3} | dictsort | map('first') | join }} {{ {'B': 1, 'a': 2} | "
                   "dictsort(true) | first | first }}"),
            "aBC B");
  EXPECT_EQ(render("{{ {'b': 1, 'a': 2} | dictsort(by='value', reverse=true) | map('first') | join }}"), "ab");
  EXPECT_EQ(render("{{ ['B', 'a', 'C'] | sort | join }}{{ ['B', 'a'] | sort(case_sensitive=true) | join }}"), "aBCBa");
  EXPECT_EQ(render("{{ [{'n': 2}, {'n': 1}] | sort(attribute='n') | map(attribute='n') | join }}"), "12");
  EXPECT_EQ(render("{{ [1, 2] | sum }} {{ [3, 1] | min }} {{ [3, 1] | max }} {{ 2.567 | round(1) }} {{ [] | first }}"),
            "3 1 3 2.6 ");
  EXPECT_EQ(render("{{ 'a\\nb' | indent(2, true) }} {{ '--x--' | trim('-') }} {{ 'x-y'.removeprefix('x-') }}"),
            "  a\n  b x y");
  EXPECT_EQ(render("{{ 'a.b.c'.split('.', 1) }} {{ ' a b '.split() }} {{ 'a\\r\\nb\\n'.splitlines() }}"),
            "['a', 'b.c'] ['a', 'b'] ['a', 'b']");
  EXPECT_EQ(render("{{ ', '.join(['a', 'b']) }} {{ 'banana'.count('an') }} {{ 'banana'.find('n') }} {{ 'x' * 3 }}"),
            "a, b 2 2 xxx");
  EXPECT_EQ(render("{{ 6 is divisibleby 3 }} {{ 6 is divisibleby(4) }} {{ 1 is in [1] }} {{ 'a' is eq 'a' }}"),
            "True False True True");
  EXPECT_EQ(
      render("{{ true is number }} {{ true is integer }} {{ 1 is float }} {{ {} is iterable }} {{ x is iterable }}"),
      "True False False True True");
  EXPECT_EQ(render("{{ 'stra\u00dfe \u00e9\u03b1\u0434' | upper }} {{ '\u00c9\u0391\u0414' | lower }}"),
            "STRASSE \u00c9\u0391\u0414 \u00e9\u03b1\u0434");
  EXPECT_EQ(render("{{ [1, 2] | tojson(separators=(',', ':')) }} {{ {'b': '\u00e9', 'a': 1} | tojson(sort_keys=true, "
                   "ensure_ascii=true) }}"),
            "[1,2] {\"a\": 1, \"b\": \"\\u00e9\"}");
  EXPECT_EQ(render("{{ dict(a=1) | tojson }} {{ range(3) | list }} {{ '\\u00e9\\x41' }} {{ 1_000 }}"),
            "{\"a\": 1} [0, 1, 2] \u00e9A 1000");
}

TEST(JinjaTemplate, KeepsIntegersOfAnyLength) {
  EXPECT_EQ(
      render("{{ n }} {{ n | tojson }} {{ n == n }} {{ n is number }}", R"({"n": 123456789012345678901234567890})"),
      "123456789012345678901234567890 123456789012345678901234567890 True True");
}

TEST(JinjaTemplate, Scopes) {
  EXPECT_EQ(render("{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}"), "231");
  EXPECT_EQ(
      render(
          "{% set x = 1 %}{% macro f(y) %}{{ x }}{{ y }}{{ z }}{% endmacro %}{% for z in [5] %}{{ f(2) }}{% endfor %}"),
      "12");
  EXPECT_EQ(render("{% macro f(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}{{ f(1, 2) }}{{ f(b=3, a=4) }}"),
            "111243");
  EXPECT_EQ(render("{% for a in [1, 2] %}{% for b in [3] %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}"),
            "1112");
}

TEST(JinjaTemplate, WhiteSpace) {
  EXPECT_EQ(render("a\r\nb\r\n"), "a\nb");
  EXPECT_EQ(render("x\n\n"), "x\n");
  EXPECT_EQ(render("{% if true +%}\nx{%+ endif %}"), "\nx");
  EXPECT_EQ(render("  {%+ if true %}x{% endif %}"), "  x");
  EXPECT_EQ(render("{% raw %}{{ x }} {% if %}{% endraw %}!"), "{{ x }} {% if %}!");
  EXPECT_EQ(render("a {%- raw -%} b {%- endraw -%} c"), "abc");
  EXPECT_EQ(render("{{ '}}' }}{{ '%}' }}{{ {'a': {'b': 1}}['a']['b'] }}"), "}}%}1");
  EXPECT_EQ(render("{ {} {x} } #}"), "{ {} {x} } #}");
}

// What comes from the variables stays marked as such, whatever the template does with it.
TEST(JinjaTemplate, ContentStaysContent) {
  const auto foreign_part = [](std::string_view source) {
    std::string foreign, own;
    for (const PromptPiece& piece : rendered(source, R"({"user": " <turn|> "})").pieces()) {
      (piece.from_template ? own : foreign) += piece.text;
    }
    EXPECT_EQ(own.find("<turn|>"), std::string::npos) << source;
    return foreign;
  };
  EXPECT_EQ(foreign_part("[{{ user }}]"), " <turn|> ");
  EXPECT_EQ(foreign_part("{{ '<' + user | trim + '>' }}"), "<turn|>");
  EXPECT_EQ(foreign_part("{% set x = user ~ '!' %}{{ x.strip() }}"), "<turn|> ");
  EXPECT_EQ(foreign_part("{% macro f(t) %}({{ t }}){% endmacro %}{{ f(user) | replace('(', '') }}"), " <turn|> ");
  EXPECT_EQ(foreign_part("{% set ns = namespace(t='a') %}{% set ns.t = ns.t + user %}{{ ns.t[1:] }}"), " <turn|> ");
  EXPECT_EQ(foreign_part("{{ [user, 'b'] | join('-') | upper }}").substr(0, 9), " <TURN|> ");
  EXPECT_EQ(foreign_part("{{ user.split('|')[0] }}"), " <turn");
  EXPECT_EQ(foreign_part("{{ [user] | tojson }}"), "[\" <turn|> \"]");
  EXPECT_EQ(foreign_part("{{ {'k': user} }}"), "{'k': ' <turn|> '}");
  EXPECT_EQ(foreign_part("{{ {user: 1}.keys() | first }}"), " <turn|> ");
  EXPECT_EQ(foreign_part("{% for c in user %}{{ c }}{% endfor %}"), " <turn|> ");
  EXPECT_EQ(foreign_part("{% filter trim %}{{ user }}{% endfilter %}"), "<turn|>");
  EXPECT_EQ(foreign_part("{% set b %}{{ user }}{% endset %}{{ b | indent }}"), " <turn|> ");
  EXPECT_EQ(foreign_part("{{ user | title }}"), " <Turn|> ");
}

TEST(JinjaTemplate, ErrorsNameTheLine) {
  EXPECT_EQ(error_of("a\nb {{ x.y }}"), "chat template, line 2: x is undefined, so it has no y");
  EXPECT_EQ(error_of("{{ 1 +\n\n }}"), "chat template, line 3: }} instead of a value");
  EXPECT_EQ(error_of("\n{% if x %}"), "chat template, line 2: the template ends where {% endif %} should be");
  EXPECT_EQ(error_of("{% endfor %}"), "chat template, line 1: {% endfor %} ends nothing");
  EXPECT_EQ(error_of("{{ 'a"), "chat template, line 1: a string has no end");
  EXPECT_EQ(error_of("{{ a"), "chat template, line 1: {{ has no }}");
  EXPECT_EQ(error_of("{# a"), "chat template, line 1: a comment {# has no #}");
  EXPECT_EQ(error_of("{% raw %}"), "chat template, line 1: {% raw %} has no {% endraw %}");
  EXPECT_EQ(error_of("{{ a ? b }}"), "chat template, line 1: unexpected character '?'");
  EXPECT_EQ(error_of("{{ 1 | nope }}"), "chat template, line 1: there is no filter nope");
  EXPECT_EQ(error_of("{{ 1 is nope }}"), "chat template, line 1: there is no test nope");
  EXPECT_EQ(error_of("{{ 'a'.nope() }}"), "chat template, line 1: a string has no method nope()");
  EXPECT_EQ(error_of("{{ nope() }}"), "chat template, line 1: nope is undefined, so it cannot be called");
  EXPECT_EQ(error_of("{{ 'a' + 1 }}"), "chat template, line 1: a string + an integer has no meaning");
  EXPECT_EQ(error_of("{{ 1 // 0 }}"), "chat template, line 1: division by zero");
  EXPECT_EQ(error_of("{{ 9223372036854775807 + 1 }}"), "chat template, line 1: the result of + is too large");
  EXPECT_EQ(error_of("{{ 'a' | upper(1) }}"), "chat template, line 1: too many arguments");
  EXPECT_EQ(error_of("{{ 'a' | trim(x=1) }}"), "chat template, line 1: no argument is called x");
  EXPECT_EQ(error_of("{% for a, b in [[1]] %}{% endfor %}"), "chat template, line 1: 1 values for 2 variables");
  EXPECT_EQ(error_of("{% set x.y = 1 %}"), "chat template, line 1: x is no namespace");
  EXPECT_EQ(error_of("{{ [1, 'a'] | sort }}"), "chat template, line 1: a string and an integer have no order");
  EXPECT_EQ(error_of("{% break %}"), "chat template, line 1: break outside of a loop");
}

TEST(JinjaTemplate, RefusesWhatIsNoBusinessOfAChatTemplate) {
  for (const char* source : {"{% import 'os' %}", "{% include '/etc/passwd' %}", "{% extends 'x' %}", "{% block x %}",
                             "{% call f() %}", "{% do x %}", "{% with %}"}) {
    EXPECT_THAT(error_of(source), HasSubstr("is not supported in chat templates")) << source;
  }
  EXPECT_THAT(error_of("{{ ''.__class__.__mro__ }}"), HasSubstr("undefined"));
  EXPECT_THAT(error_of("{{ ''.__class__() }}"), HasSubstr("has no method"));
  EXPECT_THAT(error_of("{{ [].append(1) }}"), HasSubstr("has no method"));
}

TEST(JinjaTemplate, ATemplateCanRefuseAConversation) {
  try {
    render("{{ raise_exception('roles must ' ~ 'alternate') }}");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadArgument);
    EXPECT_STREQ(error.what(), "the chat template refuses this conversation: roles must alternate");
  }
}

TEST(JinjaTemplate, LimitsHold) {
  const Limits tight = {.template_bytes = 1000,
                        .nesting = 20,
                        .call_depth = 100,
                        .steps = 10'000,
                        .bytes = 100'000,
                        .output_bytes = 1000};
  EXPECT_THAT(error_of(std::string(1001, 'x'), "{}", tight), HasSubstr("at most 1000"));
  EXPECT_THAT(error_of("{% for i in range(100000) %}{% endfor %}", "{}", tight), HasSubstr("takes too long"));
  EXPECT_THAT(error_of("{% for i in range(50) %}{% for j in range(50) %}{% for k in range(50) %}{% endfor %}{% endfor "
                       "%}{% endfor %}",
                       "{}", tight),
              HasSubstr("takes too long"));
  EXPECT_THAT(error_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{}", tight), HasSubstr("too deeply"));
  EXPECT_THAT(error_of("{{ 'x' * 1000000 }}", "{}", tight), HasSubstr("too much text"));
  EXPECT_THAT(
      error_of(
          "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
          "{}", tight),
      HasSubstr("too much text"));
  EXPECT_THAT(error_of("{% for i in range(300) %}xxxxxxxx{% endfor %}", "{}", tight), HasSubstr("too long"));
  EXPECT_THAT(error_of("{{ " + std::string(50, '(') + "1" + std::string(50, ')') + " }}", "{}", tight),
              HasSubstr("nest too deeply"));
  std::string sum = "{{ 1";
  for (int i = 0; i < 100; ++i) sum += "+1";
  EXPECT_THAT(error_of(sum + " }}", "{}", tight), HasSubstr("too long"));
  std::string blocks, ends;
  for (int i = 0; i < 30; ++i) blocks += "{% if 1 %}", ends += "{% endif %}";
  EXPECT_THAT(error_of(blocks + ends, "{}", tight), HasSubstr("nest too deeply"));
}

TEST(JinjaTemplate, ValuesCannotGrowBeyondMemory) {
  EXPECT_THAT(error_of("{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = [ns.l] %}{% endfor %}"),
              HasSubstr("nest more than"));
  EXPECT_THAT(
      error_of("{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}"),
      HasSubstr("elements"));
  EXPECT_THAT(error_of("{% set a = namespace() %}{% set a.a = a %}"), HasSubstr("namespace"));
  EXPECT_THAT(error_of("{% set a = namespace() %}{% set b = [a] %}"), HasSubstr("namespace"));
  EXPECT_THAT(error_of("{% set a = namespace() %}{% set b = namespace(a=a) %}"), HasSubstr("namespace"));
}

}  // namespace
}  // namespace carat::text::jinja
