// Statements: one method per tag. Expressions are in jinja_expression_parser.cc.
#include "lib/text/chat_template/jinja_parser.h"

#include <fmt/format.h>

#include <span>

#include "lib/support/strings.h"
#include "lib/text/chat_template/jinja_expression_parser.h"

namespace ktx::text::jinja {
namespace {

class Parser : public ExpressionParser {
 public:
  explicit Parser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  Result<Body> run() {
    Body body;
    KTX_TRY(parse_body(body, {}));
    KTX_TRY(check_names());
    return body;
  }

 private:
  using Ends = std::initializer_list<std::string_view>;
  using TagParser = Result<Stmt> (Parser::*)(Loc);
  struct Tag {
    std::string_view name;
    TagParser parse;
  };
  static std::span<const Tag> tags();

  // Statements up to a block tag named in `ends`; that name is the next token
  // then. Without `ends` up to the end of the template.
  Status parse_body(Body& body, Ends ends) {
    KTX_TRY(enter());
    while (true) {
      Token& token = current();
      const Loc loc = token.loc;
      if (token.kind == TokenKind::End) {
        if (ends.size() == 0) break;
        return error_at(loc, fmt::format("the template ends where '{}' is missing{}",
                                         *(ends.end() - 1), opened_at()));
      }
      if (token.kind == TokenKind::Text) {
        body.push_back({loc, TextStmt{std::move(token.text)}});
        advance();
      } else if (token.kind == TokenKind::VariableBegin) {
        advance();
        ExprPtr value = KTX_TRY(parse_tuple());
        KTX_TRY(expect(TokenKind::VariableEnd));
        body.push_back({loc, OutputStmt{std::move(value)}});
      } else {
        KTX_TRY(expect(TokenKind::BlockBegin));
        bool at_end = false;
        for (const std::string_view end : ends) at_end = at_end || current().is_name(end);
        if (at_end) break;
        KTX_TRY(parse_tag(body, ends));
        KTX_TRY(expect(TokenKind::BlockEnd));
      }
    }
    leave();
    return {};
  }

  Status parse_tag(Body& body, Ends ends) {
    if (current().kind != TokenKind::Name) {
      return error_at(current().loc, fmt::format("expected a tag, got {}", describe(current())));
    }
    const Loc loc = current().loc;
    const std::string name = current().text;
    if (name == "print") {
      advance();
      while (current().kind != TokenKind::BlockEnd) {
        ExprPtr value = KTX_TRY(parse_expression());
        body.push_back({loc, OutputStmt{std::move(value)}});
        if (!skip_operator(",")) break;
      }
      return {};
    }
    if (name == "include" || name == "import" || name == "from" || name == "extends") {
      return error_at(loc,
                      fmt::format("'{}' is refused; a chat template may not read others", name));
    }
    for (const Tag& tag : tags()) {
      if (tag.name != name) continue;
      advance();
      opened_.push_back({loc, tag.name});
      body.push_back(KTX_TRY((this->*tag.parse)(loc)));
      opened_.pop_back();
      return {};
    }
    if (ends.size() != 0 && (name.starts_with("end") || name == "else" || name == "elif")) {
      return error_at(loc, fmt::format("unexpected '{}', expected '{}'{}", printable(name),
                                       *(ends.end() - 1), opened_at()));
    }
    std::vector<std::string> names;
    for (const Tag& tag : tags()) names.emplace_back(tag.name);
    return error_at(loc,
                    fmt::format("unknown tag '{}'{}", printable(name), did_you_mean(name, names)));
  }

  // The body of a block tag: `%}` … `{% end`. The end's name is taken when
  // there is only one.
  Result<Body> parse_block(Ends ends) {
    skip_operator(":");
    KTX_TRY(expect(TokenKind::BlockEnd));
    Body body;
    KTX_TRY(parse_body(body, ends));
    if (ends.size() == 1) advance();
    return body;
  }

  Result<Stmt> parse_for(Loc loc) {
    ForStmt node;
    node.target = KTX_TRY(parse_target(false));
    if (!skip_name("in")) {
      return error_at(current().loc, fmt::format("expected 'in', got {}", describe(current())));
    }
    node.iterable = KTX_TRY(parse_tuple(false, "recursive"));
    if (skip_name("if")) node.condition = KTX_TRY(parse_expression());
    node.recursive = skip_name("recursive");
    ++loops_;
    node.body = KTX_TRY(parse_block({"else", "endfor"}));
    --loops_;
    const bool has_else = current().is_name("else");
    advance();
    if (has_else) node.otherwise = KTX_TRY(parse_block({"endfor"}));
    return Stmt{loc, std::move(node)};
  }

  Result<Stmt> parse_if(Loc loc) {
    IfStmt node;
    while (true) {
      IfStmt::Branch branch;
      branch.condition = KTX_TRY(parse_tuple(false));
      ++conditions_;
      branch.body = KTX_TRY(parse_block({"elif", "else", "endif"}));
      --conditions_;
      node.branches.push_back(std::move(branch));
      const std::string end = current().text;
      advance();
      if (end == "elif") continue;
      if (end == "else") {
        ++conditions_;
        node.branches.push_back({nullptr, KTX_TRY(parse_block({"endif"}))});
        --conditions_;
      }
      return Stmt{loc, std::move(node)};
    }
  }

  Result<Stmt> parse_set(Loc loc) {
    Target target = KTX_TRY(parse_target(true));
    if (skip_operator("=")) {
      ExprPtr value = KTX_TRY(parse_tuple());
      return Stmt{loc, SetStmt{std::move(target), std::move(value)}};
    }
    SetBlockStmt node;
    node.target = std::move(target);
    if (current().is_operator("|")) node.filter = KTX_TRY(parse_filters(nullptr));
    node.body = KTX_TRY(parse_block({"endset"}));
    return Stmt{loc, std::move(node)};
  }

  // Parameters in parentheses, then the body; shared by `macro` and `call`.
  Status parse_parameters(MacroStmt& macro) {
    KTX_TRY(expect_operator("("));
    while (!current().is_operator(")")) {
      if (!macro.parameters.empty()) KTX_TRY(expect_operator(","));
      Parameter parameter;
      const Loc loc = current().loc;
      parameter.name = KTX_TRY(expect(TokenKind::Name));
      if (skip_operator("=")) {
        parameter.default_value = KTX_TRY(parse_expression());
      } else if (!macro.parameters.empty() && macro.parameters.back().default_value) {
        return error_at(loc, fmt::format("parameter '{}' without a default follows one with it",
                                         printable(parameter.name)));
      }
      macro.parameters.push_back(std::move(parameter));
    }
    return expect_operator(")");
  }

  Status parse_macro_body(MacroStmt& macro, std::string_view end) {
    const int loops = loops_;
    loops_ = 0;  // `break` cannot leave a macro
    macros_.push_back(&macro);
    macro.body = KTX_TRY(parse_block({end}));
    macros_.pop_back();
    loops_ = loops;
    return {};
  }

  Result<Stmt> parse_macro(Loc loc) {
    auto macro = std::make_unique<MacroStmt>();
    macro->name = KTX_TRY(expect(TokenKind::Name));
    macros_.push_back(macro.get());  // a default may name `caller`
    KTX_TRY(parse_parameters(*macro));
    macros_.pop_back();
    KTX_TRY(parse_macro_body(*macro, "endmacro"));
    return Stmt{loc, std::move(macro)};
  }

  Result<Stmt> parse_call_block(Loc loc) {
    CallBlockStmt node;
    node.caller = std::make_unique<MacroStmt>();
    node.caller->name = "caller";
    node.caller->is_caller = true;
    if (current().is_operator("(")) KTX_TRY(parse_parameters(*node.caller));
    const Loc call_loc = current().loc;
    node.call = KTX_TRY(parse_expression());
    if (!std::holds_alternative<CallExpr>(node.call->node)) {
      return error_at(call_loc, "expected a call, as in `{% call macro() %}`");
    }
    KTX_TRY(parse_macro_body(*node.caller, "endcall"));
    return Stmt{loc, std::move(node)};
  }

  Result<Stmt> parse_filter_block(Loc loc) {
    FilterBlockStmt node;
    node.filter = KTX_TRY(parse_filters(nullptr, true));
    node.body = KTX_TRY(parse_block({"endfilter"}));
    return Stmt{loc, std::move(node)};
  }

  Result<Stmt> parse_with(Loc loc) {
    WithStmt node;
    while (current().kind != TokenKind::BlockEnd) {
      if (!node.variables.empty()) KTX_TRY(expect_operator(","));
      Target target = KTX_TRY(parse_target(false));
      KTX_TRY(expect_operator("="));
      ExprPtr value = KTX_TRY(parse_expression());
      node.variables.emplace_back(std::move(target), std::move(value));
    }
    node.body = KTX_TRY(parse_block({"endwith"}));
    return Stmt{loc, std::move(node)};
  }

  Result<Stmt> parse_named_block(Loc loc) {
    const std::string name = KTX_TRY(expect(TokenKind::Name));
    while (skip_name("scoped") || skip_name("required")) {
    }
    ScopeStmt node{KTX_TRY(parse_block({"endblock"}))};
    skip_name(name);
    return Stmt{loc, std::move(node)};
  }

  // The assistant's text, marked for training: rendered unchanged.
  Result<Stmt> parse_generation(Loc loc) {
    const int loops = loops_;
    loops_ = 0;
    ScopeStmt node{KTX_TRY(parse_block({"endgeneration"}))};
    loops_ = loops;
    return Stmt{loc, std::move(node)};
  }

  Result<Stmt> parse_autoescape(Loc loc) {
    ExprPtr on = KTX_TRY(parse_expression());
    const auto* constant = std::get_if<ConstExpr>(&on->node);
    if (constant == nullptr || !constant->value.is(Kind::Bool) || constant->value.as_bool()) {
      return error_at(loc, "only `{% autoescape false %}` is supported");
    }
    return Stmt{loc, ScopeStmt{KTX_TRY(parse_block({"endautoescape"}))}};
  }

  template <class Node>
  Result<Stmt> parse_loop_control(Loc loc) {
    if (loops_ == 0) return error_at(loc, fmt::format("'{}' outside a loop", opened_.back().name));
    return Stmt{loc, Node{}};
  }

  std::string opened_at() const {
    if (opened_.empty()) return "";
    return fmt::format(" for '{}' of line {}", opened_.back().name, opened_.back().loc.line);
  }

  struct Opened {
    Loc loc;
    std::string_view name;
  };
  std::vector<Opened> opened_;
  int loops_ = 0;
};

std::span<const Parser::Tag> Parser::tags() {
  static constexpr Tag kTags[] = {
      {"for", &Parser::parse_for},
      {"if", &Parser::parse_if},
      {"set", &Parser::parse_set},
      {"macro", &Parser::parse_macro},
      {"call", &Parser::parse_call_block},
      {"filter", &Parser::parse_filter_block},
      {"with", &Parser::parse_with},
      {"block", &Parser::parse_named_block},
      {"generation", &Parser::parse_generation},
      {"autoescape", &Parser::parse_autoescape},
      {"break", &Parser::parse_loop_control<BreakStmt>},
      {"continue", &Parser::parse_loop_control<ContinueStmt>},
  };
  return kTags;
}

}  // namespace

Result<Body> parse_template(std::string_view source) {
  return Parser(KTX_TRY(lex(source))).run();
}

}  // namespace ktx::text::jinja
