#!/usr/bin/env python3
"""Writes chat_template_cases.json: what Python's Jinja2 prints for many small templates.

    pip install jinja2 && python3 make_chat_template_cases.py > chat_template_cases.json

Development only: the tests read the JSON. Each case is [template, expected]; null
means that Jinja2 refuses it (at any time). All see the same variables. The environment
is that of Hugging Face's tokenizers. Templates with a result that depends on Python's
memory addresses or on its big integers do not belong here.
"""
import json
import sys

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

VARIABLES = {
    "messages": [
        {"role": "system", "content": "Be  kind."},
        {"role": "user", "content": "Hi <b> & \"you\" 'there'"},
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]},
        {"role": "tool", "content": [{"type": "text", "text": "21"}], "name": "f"},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "integer", "enum": [1, 2]}, "é": {"type": ["string", "null"]}}, "required": ["x"]}}}],
    "add_generation_prompt": True,
    "bos_token": "<s>",
    "s": "Hello World",
    "u": "héllo wörld 你好 🌍",
    "sp": "  \t x y \n ",
    "lines": "one\ntwo\r\nthree\n\n  four",
    "n": 7,
    "neg": -3,
    "big": 9007199254740993,
    "f": 2.5,
    "t": True,
    "no": False,
    "nil": None,
    "empty": "",
    "nums": [3, 1, 2, 10, 1],
    "words": ["banana", "Apple", "cherry", "apple"],
    "mixed": [1, "a", None, True, 2.0, [1], {"k": "v"}],
    "d": {"b": 1, "a": 2, "C": 3, "nested": {"x": [1, {"y": "z"}]}, "items": "shadow"},
    "rows": [{"n": "x", "v": 2, "g": "B"}, {"n": "y", "v": 1, "g": "a"}, {"n": "z", "v": 3, "g": "b"}],
    "tree": [{"v": 1, "c": [{"v": 2, "c": [{"v": 3, "c": []}]}, {"v": 4, "c": []}]}],
}

EXPRESSIONS = r"""
1 + 2 * 3 - 4
7 / 2
6 / 2
7 // 2
-7 // 2
7 % 3
-7 % 3
7 % -3
7.5 // 2
-7.5 % 2
2 ** 10
2 ** -1
2 ** 3 ** 2
-2 ** 2
2.0 ** 0.5
1e3
1.5e-7
1e16
1e15
123456789.123
0.1 + 0.2
1_000_000
0x1F
0b101
0o17
1e22
1.0
100.0 * 3
5 / 0
5 % 0
1 // 0
n + f
n * t
t + t
'a' + 1
1 + 'a'
'a' * 3
3 * 'ab'
'a' * -1
[1] + [2, 3]
[1] * 3
(1, 2) + (3,)
[1] + (2,)
'a' ~ 1 ~ none ~ 2.0 ~ true ~ [1, 'x'] ~ undefined_thing
1 < 2
1 < 2 < 3
1 < 3 < 2
3 > 2 >= 2 == 2
'a' < 'b'
'a' < 1
[1, 2] < [1, 3]
(1, 'a') < (1, 'b')
1 == 1.0
1 == true
'1' == 1
none == false
undefined_a == undefined_b
undefined_a == none
[1, 2] == [1, 2]
{'a': 1} == {'a': 1.0}
1 != 2
not 1
not ''
not not 'x'
1 and 2
0 and 2
0 or 'x'
'' or none or 'last'
1 and 0 or 3
not 1 == 2
not 1 in [2]
1 in [1, 2]
4 not in nums
'a' in 'cat'
'' in 'cat'
1 in 'cat'
'b' in d
'x' in undefined_thing
none in mixed
2 in range(3)
'yes' if n > 5 else 'no'
'yes' if n > 50 else 'no'
'yes' if n > 50
('yes' if n > 50) is undefined
'a' if false else 'b' if false else 'c'
1 if true else 2 if true else 3
true
True
none
None
false
[1, 'a', none, true, 1.5]
(1,)
(1, 2)
()
{}
[]
{'a': 1, 2: 'b', none: true}
{1: 'a', 1.0: 'b', true: 'c'}
'it''s'
'a' 'b' "c"
"tab\there\\n \x41 \u00e9 \101 \q"
'it\'s'
["it's", 'say "x"', 'both \' and "', 'new\nline', 'tab\t', '\x00\x7f', 'é', '\u200b', '\U0001F600']
undefined_thing
undefined_thing.attr
undefined_thing['x']
undefined_thing()
undefined_thing + 1
1 + undefined_thing
'a' + undefined_thing
-undefined_thing
undefined_thing < 1
[undefined_thing]
{'a': undefined_thing}
d.b
d['b']
d.missing
d.missing.more
d['missing'] is defined
d.nested.x[1].y
d['nested']['x'][0]
d.items
d['items']
d.nested.items()
d.keys()
d.values() | list
d.keys() | list
d.nested.get('x')
d.get('zz')
d.get('zz', 'dflt')
d | items | list
d.append
d.update({'x': 1})
d.pop('a')
nums.append(4)
nums.pop()
nums.sort()
nums.append is defined
nums.index(2)
nums.index(99)
nums.count(1)
nums[0]
nums[-1]
nums[99]
nums[99] is undefined
nums['a']
nums.0
nums.first
nums[1:]
nums[:-1]
nums[::-1]
nums[::2]
nums[1:4:2]
nums[-2:]
nums[5:1:-2]
nums[10:]
nums[::0]
nums['a':]
s[0]
s[-1]
s[1:4]
s[::-1]
s[100]
s[100:]
u[1]
u[-1]
u[12:14]
u[::-1]
u[::3]
(1, 2, 3)[1:]
(1, 2, 3)[0]
n[0]
none['a']
none.a
range(5)
range(5) | list
range(2, 10, 3) | list
range(5, 0, -2) | list
range(3)[1]
range(10)[2:4] | list
range(0)| length
range(1000000)
range('a')
range()
dict(a=1, b=2)
dict([('x', 1), ('y', 2)])
dict({'q': 1}, z=2)
namespace(a=1).a
namespace(a=1).b is defined
namespace({'k': 5}).k
s.upper()
s.lower()
s.title()
s.capitalize()
s.swapcase()
u.upper()
u.title()
'straße'.upper()
'ÀÉ'.lower()
"they're bill's".title()
"they're bill's-own (x) [y]" | title
'hELLO wORLD' | capitalize
'ünï' | title
sp.strip()
sp.lstrip()
sp.rstrip()
'xxaxx'.strip('x')
'xyaxy'.lstrip('yx')
'xyaxy'.rstrip('yx')
'\u00a0a\u3000'.strip()
'abc'.strip('')
s.strip(none)
'éaé'.strip('é')
s.split()
s.split('o')
s.split('o', 1)
s.split(maxsplit=1)
s.split(sep='l', maxsplit=2)
sp.split()
'a,b,,c'.split(',')
''.split()
''.split(',')
'a  b'.split(' ')
s.split('')
'a b c d'.split(none, 2)
' a  b  c '.split(none, 1)
'a b c d'.rsplit(none, 2)
' a  b  c '.rsplit(none, 1)
'a,b,c'.rsplit(',', 1)
'a--b--c'.rsplit('--')
lines.splitlines()
lines.splitlines(true)
''.splitlines()
'a\n'.splitlines()
s.startswith('Hell')
s.startswith(('x', 'He'))
s.startswith('World', 6)
s.startswith(1)
s.endswith('ld')
s.endswith(('a', 'ld'))
s.endswith('Hello', 0, 5)
s.find('o')
s.find('o', 5)
s.find('zz')
s.rfind('o')
s.rfind('o', 0, 5)
s.index('W')
s.index('zz')
u.find('你')
u.rfind('l')
'a' 'b'.find('b')
s.count('l')
s.count('')
'aaaa'.count('aa')
s.count('l', 4)
s.replace('l', 'L')
s.replace('l', 'L', 1)
'abc'.replace('', '-')
'abc'.replace('', '-', 2)
'aaa'.replace('aa', 'b')
', '.join(words)
''.join([])
', '.join(nums)
','.join('abc')
s.removeprefix('Hello ')
s.removesuffix('World')
s.removeprefix('x')
'7'.isdigit()
'7a'.isdigit()
''.isdigit()
'²'.isdigit()
'²'.isdecimal()
'½'.isnumeric()
'abc'.isalpha()
'é'.isalpha()
'a1'.isalnum()
'a 1'.isalnum()
' \t'.isspace()
'abc'.islower()
'aBc'.islower()
'ABC1'.isupper()
'Hello World'.istitle()
'_x1'.isidentifier()
'1x'.isidentifier()
'abc'.isascii()
'7'.zfill(3)
'-7'.zfill(4)
'ab'.center(7, '*')
'ab'.center(6)
'abc'.center(6)
'ab'.ljust(5, '.')
'ab'.rjust(5)
'a=b=c'.partition('=')
'a=b=c'.rpartition('=')
'abc'.partition('x')
'abc'.rpartition('x')
'a\tb'.expandtabs(4)
s.nope()
s.nope
'{} and {}'.format(1, 'x')
'{0} {1} {0}'.format('a', 'b')
'{name}!'.format(name='Bo')
'{:>5}|{:<5}|{:^5}|'.format('a', 'b', 'c')
'{:05d} {:+d} {:,} {:x} {:#x} {:b}'.format(42, 7, 1234567, 255, 255, 5)
'{:.2f} {:8.3f} {:e} {:g} {:%}'.format(3.14159, 2.5, 12345.678, 0.0001, 0.25)
'{0[a]} {1.role}'.format({'a': 1}, messages[0])
'{!r} {!s}'.format('a', 'b')
'{{}}'.format()
'{}'.format()
'{:>{w}}'.format('x', w=4)
'{:*^9}'.format('mid')
'{}'.format(none) ~ '{}'.format(true)
'{:d}'.format('x')
'{:.3}'.format('abcdef')
'%s is %d' % ('x', 5)
'%s' % 'one'
'%s %s' % ('a',)
'%5.2f|%-6s|%06d|%x|%%' % (3.14159, 'ab', 42, 255)
'%(a)s-%(b)d' % {'a': 1, 'b': 2}
'%r' % 'q'
'%d' % 'x'
'%d' % 3.99
'%s' % [1, 2]
'%s' % none
'%e %g %G' % (12345.678, 1e-10, 1e20)
'%+d % d' % (5, 5)
'%c%c' % ('a', 98)
'%3d|%-3d|' % (5, 5)
'%s' % (1, 2)
'%*d' % (5, 42)
'%i' % 5
'%o' % 8
'%#x' % 255
'%.3s' % 'abcdef'
'%s %s'|format('a', 'b')
'%(x)s'|format(x=1)
'%d items'|format(3)
s | upper
s | lower
n | upper
none | upper
undefined_thing | upper
sp | trim
sp | trim | length
'xxaxx' | trim('x')
undefined_thing | trim
none | trim
s | length
u | length
nums | length
d | length
n | length
none | length
undefined_thing | length
range(4) | length
nums | count
s | replace('o', '0')
s | replace('o', '0', 1)
s | replace(old='l', new='L')
n | replace(7, 8)
nums | first
nums | last
[] | first
[] | first is undefined
[] | last
s | first
s | last
d | first
nums | join
nums | join(', ')
rows | join(', ', attribute='n')
words | join(d='-')
'abc' | join('.')
[1, none, 'x', 2.0] | join(' ')
undefined_thing | join(',')
nums | sort
nums | sort(reverse=true)
words | sort
words | sort(case_sensitive=true)
rows | sort(attribute='v') | map(attribute='n') | list
rows | sort(attribute='g,n') | map(attribute='n') | list
rows | sort(true, attribute='v') | map(attribute='n') | list
mixed | sort
nums | reverse
nums | reverse | list
s | reverse
u | reverse
nums | unique | list
words | unique | list
words | unique(case_sensitive=true) | list
rows | unique(attribute='g') | map(attribute='n') | list
nums | min
nums | max
words | min
words | max
[] | max
[] | max is undefined
rows | max(attribute='v')
nums | sum
[] | sum
[1.5, 2] | sum
rows | sum(attribute='v')
nums | sum(start=100)
['a'] | sum
words | map('upper') | list
words | map('length') | join(',')
words | map('replace', 'a', 'A') | list
rows | map(attribute='n') | list
rows | map(attribute='zz') | list
rows | map(attribute='zz', default='?') | list
tools | map(attribute='function.name') | list
tools | map(attribute='function') | map(attribute='name') | join(',')
[[1, 2], [3, 4]] | map(attribute=1) | list
[[1, 2], [3, 4]] | map('first') | list
nums | map('nofilter') | list
nums | map
none | map('upper') | list
nums | select('odd') | list
nums | select | list
[0, 1, '', 'a'] | select | list
nums | reject('odd') | list
nums | select('>', 2) | list
nums | select('divisibleby', 2) | list
nums | select('in', [1, 2]) | list
mixed | select('string') | list
mixed | reject('none') | list
words | select('equalto', 'Apple') | list
nums | select('notest') | list
rows | selectattr('v') | map(attribute='n') | list
rows | selectattr('v', 'gt', 1) | map(attribute='n') | list
rows | selectattr('n', 'equalto', 'x') | list
rows | rejectattr('n', '==', 'x') | map(attribute='n') | list
messages | selectattr('role', 'equalto', 'user') | list | length
messages | selectattr('tool_calls', 'defined') | list | length
messages | selectattr('tool_calls') | list | length
messages | rejectattr('role', 'in', ['system', 'tool']) | map(attribute='role') | list
rows | groupby('g') | list
rows | groupby('g', case_sensitive=true) | map('first') | list
rows | groupby('g') | map(attribute='grouper') | list
nums | batch(2) | list
nums | batch(2, 0) | list
nums | slice(2) | list
nums | slice(3, 'x') | list
d.nested | items | list
none | items
undefined_thing | items | list
{'b': 1, 'A': 2, 'c': 0} | dictsort
{'b': 1, 'A': 2, 'c': 0} | dictsort(true)
{'b': 1, 'A': 2, 'c': 0} | dictsort(false, 'value')
{'b': 1, 'A': 2, 'c': 0} | dictsort(reverse=true)
d | list
s | list
u | list
n | list
undefined_thing | list
none | list
n | string
none | string
[1] | string
n | string + 'x'
1.0 | string
'42' | int
'42.7' | int
'abc' | int
'abc' | int(-1)
'abc' | int(default=5)
'0x1A' | int(base=16)
'1A' | int(0, 16)
' 42 ' | int
'-7' | int
'1_000' | int
'' | int
none | int
3.99 | int
-3.99 | int
true | int
[1] | int
undefined_thing | int
'3.5' | float
'abc' | float
'abc' | float(1.5)
'1e3' | float
n | float
'inf' | float
'nan' | float
none | float
-5 | abs
-5.5 | abs
'x' | abs
2.5 | round
3.5 | round
2.567 | round(2)
2.675 | round(2)
42.55 | round(1, 'floor')
42.51 | round(1, 'ceil')
42 | round
1234 | round(-2)
1250 | round(-2)
1234.5 | round(-2)
'x' | round
0.5 | round
1.5 | round | int
-2.5 | round
undefined_thing | default('d')
undefined_thing | d('d')
undefined_thing | default
none | default('d')
none | default('d', true)
'' | default('d', true)
'' | default('d', boolean=true)
0 | default(default_value='d', boolean=true)
d.missing | default('dm')
d.missing.more | default('dm')
false | default('x')
'x' | default('y', true)
messages | tojson
tools | tojson
tools | tojson(indent=2)
tools | tojson(indent=4)
tools[0] | tojson(ensure_ascii=False)
tools[0] | tojson(ensure_ascii=True)
u | tojson
u | tojson(ensure_ascii=true)
mixed | tojson
d | tojson(sort_keys=true)
d | tojson(separators=(',', ':'))
d | tojson(indent=0)
d | tojson(indent='--')
d | tojson(false, 2)
[] | tojson(indent=2)
{} | tojson(indent=2)
[[], {}, [[]]] | tojson(indent=1)
none | tojson
true | tojson
1.0 | tojson
1e100 | tojson
1e16 | tojson
'<a href="x">&\'</a>' | tojson
"q\"\\\n\r\t\b\f\x01\x7f\u2028" | tojson
(1, 2) | tojson
{1: 2, none: 3, true: 4, 2.5: 5} | tojson
{(1, 2): 3} | tojson
undefined_thing | tojson
{'a': undefined_thing} | tojson
range(3) | tojson
d.keys() | tojson
namespace() | tojson
'inf' | float | tojson
n | tojson | length
big
big | tojson
'a\nb\n\nc' | indent
'a\nb\n\nc' | indent(2)
'a\nb\n\nc' | indent(2, true)
'a\nb\n\nc' | indent(2, true, true)
'a\nb' | indent(width=3, first=True)
'a\nb' | indent('> ')
'a\nb\n' | indent(2)
'' | indent
'a' | indent(first=true)
n | indent
'ab' | center(7)
'foo bar baz qux' | truncate(9)
'foo bar baz qux' | truncate(9, true)
'foo bar baz qux' | truncate(11)
'foo bar baz qux' | truncate(11, false, '..', 0)
'foo' | truncate(2)
'a b  c-d e_f' | wordcount
u | wordcount
'a b/c?d=é&x' | urlencode
{'a': 1, 'b c': 'd&e'} | urlencode
[('x', 'y z')] | urlencode
n | urlencode
'<a> & "b"' | escape
'<a>' | e
'<a>' | e | e
'<a>' | escape | forceescape
'<a>' | safe
'<a>' | safe + '<b>'
'<b>' + ('<a>' | safe)
('<a>' | safe) ~ '<b>'
'<a>' | e | upper
('<a>' | safe).replace('a', '<')
'<a>' | safe | length
('<x>' | safe) is escaped
'<x>' is escaped
1 | filesizeformat
1000 | filesizeformat
1500000 | filesizeformat
2048 | filesizeformat(true)
d | attr('b')
d | attr('get')
s | attr('upper')
rows[0] | attr('n')
messages | map(attribute='role') | join(' ')
messages | map(attribute='role') | length
(messages | map(attribute='role'))[0]
messages | map(attribute='role') | first
messages | map(attribute='role') | list | first
nums | nofilter
nums is notest
n is defined
undefined_thing is defined
undefined_thing is undefined
undefined_thing is not defined
d.zz is defined
none is none
n is not none
undefined_thing is none
n is number
f is number
t is number
s is number
n is integer
t is integer
f is integer
f is float
n is float
t is boolean
n is boolean
t is true
n is true
no is false
s is string
n is string
('<x>' | safe) is string
d is mapping
nums is mapping
nums is sequence
s is sequence
d is sequence
n is sequence
undefined_thing is sequence
range(3) is sequence
nums is iterable
s is iterable
d is iterable
n is iterable
none is iterable
undefined_thing is iterable
(nums | map('string')) is iterable
(nums | map('string')) is sequence
s.upper is callable
s is callable
range is callable
n is odd
n is even
n is divisibleby 7
n is divisibleby(2)
s is odd
n is eq 7
n is equalto 7
n is equalto(7)
n is ne 7
n is lt 8
n is gt 8
n is le 7
n is ge 8
n is lessthan 10
n is greaterthan 10
n is sameas n
none is sameas none
true is sameas true
1 is sameas true
n is in [1, 7]
n is in nums
'a' is in 'cat'
n is not in nums
'abc' is lower
'ABC' is upper
'aBc' is lower
'12' is upper
'upper' is filter
'nope' is filter
'odd' is test
not n is odd
n is odd and f is float
n is odd or undefined_thing.x
(n is odd) == true
n is defined and n > 5
-n is number
n == 7 is true
strftime_now('%Y-%m-%d')
strftime_now('%d %b %Y')
strftime_now('%A %B %-d %H:%M:%S %p %j %y %I')
strftime_now('100%% %q')
raise_exception('boom')
raise_exception('boom: ' + s)
[1, 2] | tojson + 'x'
'x' + [1, 2] | tojson
'x' + nums | join(',')
-1 | abs
- 1 ** 2
+n
+s
1.real
n.real
f.is_integer()
(1.0).is_integer()
s.__class__
s.__class__.__mro__
messages[0].role
messages[-1]['content'][0].text
messages[1:] | map(attribute='role') | list
messages | length - 1
(messages | length) % 2 == 0
messages[(messages | length) - 1].role
messages[0]['content'].split('  ')[-1].lstrip('k')
messages[2].tool_calls[0].function.arguments | items | list
messages[2].content or 'empty'
(messages[2].tool_calls or []) | length
messages[2].content is none
'tool_calls' in messages[2]
messages[2]['tool_calls'] is defined and messages[2]['tool_calls'] is not none
{'name': 'x', 'arguments': {'a': 1}} | tojson
{**d}
[*nums]
lambda x: x
x = 1
a b
1 +
(1
[1, 2
{'a'}
{'a': }
nums[
nums[]
'unclosed
1 2
a.b.
.5
5.
n|
n is
a..b
f(
f(a b)
f(a=1, 2)
f(**d, 1)
f(a=1, a=2)
"\xZZ"
n if
not
in
1 === 1
a ? b : c
a && b
a || b
!a
a; b
@
$x
#
"""

TEMPLATES = [
    "",
    "plain text",
    "plain\n",
    "plain\n\n",
    "a\r\nb\rc\n",
    "{{ s }}\n{{ s }}\n",
    "{% if true %}\nyes\n{% endif %}\nend",
    "  {% if true %}\n  yes\n  {% endif %}\nend",
    "x {% if true %} yes {% endif %} y",
    "x\n\n   {%- if true %}   yes   {%- endif %}\n  y",
    "x {%- if true -%} yes {%- endif -%} y",
    "x\n  {%+ if true %}yes{% endif +%}\ny",
    "a {#- comment -#} b",
    "a {# comment #} b",
    "a\n{# comment #}\nb",
    "a\n  {# comment #}\nb",
    "a\n  {#+ comment +#}\nb",
    "a {{- s -}} b",
    "a\n  {{ s }}\n  b",
    "a\n  {{- s }}\n  b",
    "a\n  {{ s -}}\n  b",
    "  {{ s }}",
    "\t{% set x = 1 %}\n{{ x }}",
    "{% raw %}{{ not }} {% this %}{% endraw %}",
    "a\n{% raw %}\n {{ x }}\n{% endraw %}\nb",
    "a\n  {%- raw -%}\n {{ x }}\n  {%- endraw -%}\n b",
    "{% raw %}{% raw %}{% endraw %}",
    "{ { } } {x} {",
    "{{ '{{' }}{{ '}}' }}{{ '%}' }}",
    "{{ {'a': {'b': 1}}}}",
    "{{ {'a': {'b': 1}} }}",
    "{% for i in [1, 2, 3] %}{{ i }}{% endfor %}",
    "{% for i in [1, 2, 3] %}{{ i }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% for i in [] %}x{% else %}none{% endfor %}",
    "{% for i in [1] %}x{% else %}none{% endfor %}",
    "{% for i in [1, 2, 3, 4] if i is odd %}{{ i }}:{{ loop.index }}/{{ loop.length }}{% if loop.last %}!{% endif %} {% endfor %}",
    "{% for i in [1, 2] if i > 5 %}x{% else %}none{% endfor %}",
    "{% for i in nums %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }} {% endfor %}",
    "{% for i in nums %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}",
    "{% for i in nums %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }} {% endfor %}",
    "{% for i in nums %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for i in [1, 1, 2, 2, 1] %}{{ loop.changed(i) }} {% endfor %}",
    "{% for i in nums %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in nums %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in nums %}{% for j in nums %}{% if j == 2 %}{% break %}{% endif %}{{ j }}{% endfor %}|{% endfor %}",
    "{% for i in nums %}{% break %}{% else %}else{% endfor %}",
    "{% break %}",
    "{% if true %}{% continue %}{% endif %}",
    "{% for k, v in d.nested.items() %}{{ k }}={{ v }}{% endfor %}",
    "{% for k, v in d | items %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d | dictsort %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }} {% endfor %}",
    "{% for a, b in [(1, 2), (3, 4)] %}{{ a + b }} {% endfor %}",
    "{% for (a, b), c in [((1, 2), 3)] %}{{ a + b + c }}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{{ a }}{% endfor %}",
    "{% for a, b in [1] %}{{ a }}{% endfor %}",
    "{% for c in 'abé' %}[{{ c }}]{% endfor %}",
    "{% for x in none %}{% endfor %}",
    "{% for x in 5 %}{% endfor %}",
    "{% for x in undefined_thing %}x{% else %}nothing{% endfor %}",
    "{% for x in nums | reverse %}{{ x }}{{ loop.last }} {% endfor %}",
    "{% for x in nums | select('odd') %}{{ x }}{{ loop.length }} {% endfor %}",
    "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}",
    "{% for x in nums recursive %}{{ x }}{% endfor %}",
    "{% for x in tree recursive %}{{ loop.depth }}:{{ x.v }}{% if x.c %}({{ loop(x.c) }}){% endif %}{% endfor %}",
    "{% for x in nums %}{{ loop(x) }}{% endfor %}",
    "{% set g = nums | map('string') %}{{ g | join(',') }}|{{ g | join(',') }}",
    "{% set x = 1 %}{% for i in nums %}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}",
    "{% set ns = namespace(x=0) %}{% for i in nums %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace() %}{% set ns.a = 1 %}{% set ns.b = [ns.a] %}{{ ns.a }}{{ ns.b }}{{ ns }}",
    "{% set ns = namespace(a=1) %}{{ ns.zz }}|{{ ns.zz is defined }}",
    "{% set d.b = 5 %}",
    "{% set q.b = 5 %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set a, b = [3, 4] %}{{ a }}{{ b }}",
    "{% set a, b = 1 %}",
    "{% set (a, b) = (1, 2) %}{{ b }}",
    "{% set x = 1, 2 %}{{ x }}",
    "{% set x %}block {{ s }}{% endset %}[{{ x }}]{{ x | length }}",
    "{% set x | upper %}block {{ s }}{% endset %}[{{ x }}]",
    "{% set x | upper | replace('B', 'C') %}block{% endset %}[{{ x }}]",
    "{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% set true = 1 %}",
    "{% set x = %}",
    "{% set 1 = 2 %}",
    "{% if n > 5 %}a{% elif n > 3 %}b{% else %}c{% endif %}",
    "{% if n > 15 %}a{% elif n > 3 %}b{% else %}c{% endif %}",
    "{% if n > 15 %}a{% elif n > 13 %}b{% else %}c{% endif %}",
    "{% if undefined_thing %}a{% else %}b{% endif %}",
    "{% if nil %}a{% elif empty %}b{% elif [] %}c{% elif 0.0 %}d{% else %}e{% endif %}",
    "{% if true %}a",
    "{% endif %}",
    "{% if true %}{% endfor %}",
    "{% for x in nums %}{% endif %}",
    "{% if %}{% endif %}",
    "{% nope %}",
    "{% do nums.append(1) %}",
    "{%",
    "{{",
    "{#",
    "{{ }}",
    "{% %}",
    "{% raw %}",
    "{{ s",
    "{{ s }",
    "{% if x }}",
    "{{ s %}",
    "{% macro f(a, b=2) %}{{ a }}-{{ b }}{% endmacro %}{{ f(1) }} {{ f(1, 3) }} {{ f(b=5, a=4) }} {{ f() }}",
    "{% macro f(a, b=a) %}{{ a }}-{{ b }}{% endmacro %}{{ f(1) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(c=2) }}",
    "{% macro f(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, 3, x=4) }}",
    "{% macro f() %}{{ caller() }}!{% endmacro %}{% call f() %}body {{ s }}{% endcall %}",
    "{% macro f() %}{{ caller(1, 2) }}!{% endmacro %}{% call(a, b) f() %}{{ a }}+{{ b }}{% endcall %}",
    "{% macro f() %}x{% endmacro %}{% call f() %}body{% endcall %}",
    "{% macro f() %}{{ caller() }}{% endmacro %}{{ f() }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
    "{% macro f(x) %}  {{ x }}  {% endmacro %}[{{ f('a') | trim }}]",
    "{% macro f() %}{% set y = 5 %}{{ s }}{% endmacro %}{{ f() }}{{ y }}",
    "{% macro f() %}{{ z }}{% endmacro %}{% set z = 'late' %}{{ f() }}",
    "{% macro f(x) %}{{ x }}{% endmacro %}{{ f.name }} {{ f.arguments }} {{ f }}",
    "{% macro f(a, b) %}{{ a is defined }}{{ b is defined }}{% endmacro %}{{ f(1) }}",
    "{% macro f(a=1, b) %}{% endmacro %}",
    "{% macro f(x) -%}\n  {{ x }}\n{%- endmacro -%}\n\n[{{ f(1) }}]",
    "{% for i in [1, 2] %}{% macro f() %}{{ i }}{% endmacro %}{{ f() }}{% endfor %}",
    "{% for i in nums %}{% set y = i %}{% endfor %}{{ y is defined }}",
    "{% macro f(x) %}{{ x }}{% endmacro %}{{ f(*[1]) }}{{ f(**{'x': 2}) }}",
    "{% macro f(x) %}{{ loop is defined }}{% endmacro %}{% for i in [1] %}{{ f(i) }}{% endfor %}",
    "{% filter upper %}abc {{ s }}{% endfilter %}",
    "{% filter upper | replace('A', 'x') %}abc{% endfilter %}",
    "{% filter indent(2) %}a\nb{% endfilter %}",
    "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}",
    "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}",
    "{% with a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}{% endwith %}",
    "{% block x %}in {{ s }}{% endblock %}",
    "{% block x %}in{% endblock x %}",
    "{% generation %}gen {{ s }}{% endgeneration %}",
    "{% generation %}{% set q = 1 %}{{ q }}{% endgeneration %}{{ q is defined }}",
    "{% for m in messages %}{% generation %}{{ m.role }}{{ loop.index }}{% endgeneration %}{% endfor %}",
    "{% include 'x' %}",
    "{% import 'x' as y %}",
    "{% from 'x' import y %}",
    "{% extends 'x' %}",
    "{% autoescape false %}{{ '<' }}{% endautoescape %}",
    "{% print s, n %}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.reset() }}{{ c.current }}",
    "{% set j = joiner('; ') %}{% for i in nums %}{{ j() }}{{ i }}{% endfor %}",
    "{% set loop_messages = messages[1:] %}{% for m in loop_messages %}{{ m['role'] }}{{ loop.index0 }};{% endfor %}",
    "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}",
    "{% for m in messages %}{%- if m['content'] is string -%}S{%- elif m['content'] is iterable -%}L{%- else -%}N{%- endif -%}{% endfor %}",
    "{%- for m in messages -%}\n    {%- if loop.first -%}\n        first\n    {%- endif -%}\n    {{ m.role }}\n{% endfor %}",
    "{% set ns = namespace(found=false) %}{% for m in messages %}{% if m.role == 'tool' %}{% set ns.found = true %}{% break %}{% endif %}{% endfor %}{{ ns.found }}",
    "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{{ add_generation_prompt }}",
    "{% if tools is defined and tools is not none and tools | length > 0 %}T{% endif %}",
    "{% if tools and tools is iterable and tools is not mapping %}T{% endif %}",
    "{{ bos_token }}{{ eos_token }}",
    "{{- bos_token -}}",
    "{% set messages = messages[1:] %}{{ messages | length }}",
    "{% for i in range(3) %}{% set messages = [] %}{{ messages | length }}{% endfor %}{{ messages | length }}",
    "{{ raise_exception('x') if false else 'ok' }}",
    "{% if false %}{{ s | nofilter }}{% endif %}ok",
    "{% if false %}{{ s is notest }}{% endif %}ok",
    "{{ s | nofilter if false else 'ok' }}",
    "{% if false %}{% for x in nums %}{{ x }}{% endfor %}{% endif %}ok",
    "{%- set x = namespace(v='') -%}{%- for w in words -%}{%- set x.v = x.v ~ w[0] -%}{%- endfor -%}{{ x.v }}",
    "{% for m in messages %}{{ loop.index }}{% for t in nums[:2] %}{{ loop.index }}{{ t }}{% endfor %}{{ loop.index }} {% endfor %}",
    "{% set outer = [] %}{% for a in [1, 2] %}{% set outer_loop = loop %}{% for b in [1, 2] %}{{ outer_loop.index }}{{ loop.index }} {% endfor %}{% endfor %}",
    "{{ s }}{# a #}{{ s }}\n{#- b -#}\n{{ s }}",
    "line1\n{%- if true %}\nline2\n{%- endif %}\nline3",
    "{%- if true -%}\n\n  x  \n\n{%- endif -%}\n",
    "   {%- if true %}x{% endif %}   ",
    "\n\n{% if true %}\n\nx\n\n{% endif %}\n\n",
    "a{% if true %}\n{% endif %}b",
    "{% if true %} \n x{% endif %}",
    "{% set x = {'a': [1, 2, {'b': none}]} %}{{ x }}|{{ x.a[2].b }}|{{ x['a'][:2] }}",
    "{% set x = [1, 2, 3] %}{{ x | map('string') | join('-') }}{{ x | length }}",
    "{{ 'a' if s == 'Hello World' and n == 7 or false else 'b' }}",
    "{% set q = 'x' if nil else 'y' %}{{ q }}",
    "{{ ('a', 'b') | join('+') }}{{ [('a', 1)] | list }}",
    "{{ messages[0].content | trim | upper | length }}",
    "{% for i in range(10, 0, -3) %}{{ i }} {% endfor %}",
    "{{ (1, 2) in [(1, 2)] }}{{ {(1, 2): 'x'}[(1, 2)] }}",
    "{% macro outer() %}{% macro inner(x) %}<{{ x }}>{% endmacro %}{{ inner('i') }}{{ inner('j') }}{% endmacro %}{{ outer() }}",
    "{% set text = '' %}{% for m in messages %}{% set text = text ~ m.role %}{% endfor %}[{{ text }}]",
    "{% set t = tools[0].function.parameters.properties %}{% for k, v in t.items() %}{{ k }}: {{ v.type if v.type is string else v.type | join(' | ') }}{{ ' = ' ~ v.enum | join(', ') if v.enum }};{% endfor %}",
    "{{ {'a': 1}.items() }}{{ {'a': 1}.keys() }}{{ {'a': 1}.values() }}",
    "{% for g, items in rows | groupby('g') %}{{ g }}: {{ items | map(attribute='n') | join(',') }}; {% endfor %}",
    "{% for g in rows | groupby('g') %}{{ g.grouper }}{{ g.list | length }}{% endfor %}",
    "{{ dict(a=1) | tojson }}{{ dict(**{'b': 2}) | tojson }}",
    "{{ nums.copy() }}{{ d.copy() | length }}",
    "{% set a = b = 1 %}",
    "{{ 1 if 2 }}{{ 1 if 0 }}",
    "{% if (s, n) == ('Hello World', 7) %}eq{% endif %}",
    "{{ 'x' is in ['x'] }}{{ not 'x' in ['x'] }}",
    "{{ messages[0] == {'role': 'system', 'content': 'Be  kind.'} }}",
    "{% set m = messages[0] %}{% set m = dict(m, content='new') %}{{ m.content }}{{ messages[0].content }}",
    "{{ '\\n' }}{{ '\\\\n' }}{{ \"a\\\nb\" }}",
    "{{ 'multi\nline' }}",
    "{%if true%}tight{%endif%}",
    "{{s}}{{n+1}}{{-n}}",
    "{%-if true-%} x {%-endif-%}",
    "{{ 5 - -3 }}{{ 5--3 }}",
    "{{ 10 - 2 - 3 }}{{ 2 * 3 % 4 }}{{ 100 // 7 // 2 }}",
    "{{ 'a' ~ 'b' + 'c' }}",
    "{{ 1 ~ 2 + 3 }}",
    "{{ 1 + 2 ~ 3 }}",
    "{{ not true or true }}{{ not (true or true) }}",
    "{{ 1 < 2 and 2 < 3 }}{{ 1 < 2 == true }}",
    "{% for i in [3, 4] %}{{ loop }}{% endfor %}",
    "{% set x = 5 %}{% set x = x * 2 %}{{ x }}",
    "{{ loop }}",
    "{{ self }}" if False else "{{ nothing }}",
    "{% for x in [1, 2, 3] %}{{ x }}{% if loop.index is divisibleby(2) %}even{% endif %}{% endfor %}",
    "{% for x in nums if loop is undefined %}{{ x }}{% endfor %}",
    "{% for x in nums if x > 1 %}{{ loop.previtem }}-{{ x }}-{{ loop.nextitem }} {% endfor %}",
    "{{ [1, 2, 3] | map('string') | map('replace', '2', 'two') | list }}",
    "{{ none | default('a', true) | upper }}",
    "{% set x = undefined_thing | default({}) %}{{ x.y is defined }}",
    "{% set content = messages[3].content %}{% for c in content %}{% if c.type == 'text' %}{{ c.text }}{% endif %}{% endfor %}",
    "{{ messages | selectattr('role', 'eq', 'system') | map(attribute='content') | first }}",
    "{{ (messages | selectattr('role', 'eq', 'nobody') | first) is undefined }}",
    "{{ (messages | last).role }}{{ messages | map(attribute='role') | unique | list | length }}",
    # Found by comparing random templates.
    "{{ n[0:1] }}",
    "{{ t[:] }}",
    "{{ nil[1:] }}",
    "{{ f[::-1] }}",
    "{{ d[:2] }}",
    "{{ (nums|length)[-2:] }}",
    "{{ nums[9][0:1] }}",
    "{{ n|truncate(5) }}",
    "{{ t|truncate(5) }}",
    "{{ f|truncate(8, leeway=0) }}",
    "{{ nil|truncate }}",
    "{{ missing|truncate }}|{{ [missing|truncate(3, true)] }}",
    "{{ nums|truncate(5, true) }}",
    "{{ nums|truncate(3, true, '', 0) }}",
    "{{ d.nested|truncate(5, true) }}",
    "{{ rows[0]|truncate(2, true, '..', 0) }}",
    "{{ words|filesizeformat }}",
    "{{ nil|filesizeformat }}",
    "{{ s|filesizeformat }}",
    "{{ '1500'|filesizeformat }}",
    "{{ rows[0]|sort(attribute='v') }}",
    "{{ messages|sort(attribute='zz')|length }}",
    "{{ messages|sort(attribute='name')|length }}",
    "{{ words|sort(attribute='zz') }}",
    "{{ rows|sort(attribute='g,v')|map(attribute='n')|join }}",
    "{{ rows|sort(attribute='zz,v')|map(attribute='n')|join }}",
    "{% macro m() %}{{ kwargs }}{% endmacro %}{% call m() %}in{% endcall %}",
    "{% macro m() %}{{ kwargs }}{% endmacro %}{% call(q) m(z=1) %}{{ q }}{% endcall %}",
]


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def strftime_now(format):
        import datetime
        return datetime.datetime(2026, 1, 2, 3, 4, 5).strftime(format)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def render(env, template):
    try:
        return env.from_string(template).render(**json.loads(json.dumps(VARIABLES)))
    except Exception:
        return None


def main():
    env = environment()
    templates = ["{{ " + e + " }}" for e in EXPRESSIONS.strip("\n").split("\n")] + TEMPLATES
    cases = [[t, render(env, t)] for t in templates]
    cases = [c for c in cases if c[1] is None or " at 0x" not in c[1]]
    out = ["{", '"variables": ' + json.dumps(VARIABLES, ensure_ascii=False) + ",", '"cases": [']
    out.append(",\n".join(json.dumps(c, ensure_ascii=True) for c in cases))
    out += ["]", "}"]
    sys.stdout.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
