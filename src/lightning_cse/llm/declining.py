"""Replies in which a model declines in words of its own."""

from __future__ import annotations

import re
from typing import Final

_DECLINES: Final = re.compile(
    r"\b(sorry|apologi[sz]e|can(not| not|['’]?t)|unable|wo(n['’]t|uld rather not)|will not|not able|decline|refuse)\b",
    re.IGNORECASE,
)

_BEGINNING: Final = 400
"""Characters in which a refusal shows; more may follow, of the reasons or of what else to ask."""

_ADVERB: Final = r"(?:(?:simply|really|just|also|therefore|respectfully|ethically|unfortunately|in good conscience) )*"
_I: Final = rf"(?:i|we)\b ?{_ADVERB}"
_CANNOT: Final = r"can(?:not| not|'?t)"
_WILL_NOT: Final = r"(?:will not|won't)"
_DECLINE: Final = r"(?:(?:must|have to|need to|will have to|'ll have to) (?:\w+ly )?)?(?:decline|refuse)"
_DO_NOT: Final = (
    rf"(?:(?:{_CANNOT}|{_WILL_NOT})(?: be able to)?|must not|may not|(?:do not|don't)(?: feel comfortable)?"
    r"|(?:am|'m|are|'re) (?:unable|prohibited|uncomfortable"
    r"|not (?:able|going|allowed|permitted|designed|programmed|willing|comfortable|in a position))(?: to)?"
    rf"|'d rather not|would rather not|{_DECLINE} to)"
)
_I_DO_NOT: Final = rf"{_I}{_DO_NOT} {_ADVERB}"

# What assistants are asked for. What people cannot do is more: to come, to say, to wait.
_SERVE: Final = (
    r"(?:be |of )?(?:assist|help|creat|generat|provid|writ|produc|compos|fulfil|compl(?:y|et)|proceed|process|respond"
    r"|answer|engag|participat|support|shar|offer|discuss|rewrit|rephras|reword|paraphras|translat|accommodat|satisf|craft"
    r"|draft|judg|rat(?:e|ing)\b|perform|endors|promot|facilitat|entertain|address|comment|contradict|continu)\w*"
)
_ASKED: Final = (
    r"(?:requests?|prompts?|questions?|tasks?|topics?|instructions?|content|materials?|sentences?|statements?|texts?"
    r"|responses?|answers?|repl(?:y|ies)|outputs?|hypothes[ie]s|premises?|paraphrases?|contradictions?|examples?"
    r"|information|advice|versions?|rewrites?|translations?|conversations?|discussions?|subject|quer(?:y|ies)|inputs?"
    r"|assistance|speech|(?:some|any)thing that)"
)
_THIS: Final = r"(?:this|that|these|those)"

_SORRY: Final = (
    r"(?:(?:i'm|i am|we're|we are) (?:\w+ )?sorry|sorry|(?:i'm|i am) afraid|(?:my |our )?(?:sincere )?apologies"
    r"|(?:i|we) (?:\w+ )?apologi[sz]e|unfortunately|regrettably|(?:i|we) regret)"
)
_BUT: Final = r"[\s,.;:!?-]+(?:(?:but|however|that|as|and)[, ]+)*"
_MACHINE: Final = (
    r"(?:an? )?(?:\w+ )?(?:ai|artificial intelligence|(?:large )?language model|virtual assistant)"
    r"(?: (?:language )?(?:model|assistant|system|chatbot))?"
)
_WORK: Final = r"(?:rewrit|rephras|reword|paraphras|contradict|transform|simplif|shorten|work|chang)\w*"
_GIVE: Final = (
    r"(?:(?:please|kindly) |(?:could|can|would|will) you (?:please |kindly )?)(?:go ahead and )?"
    r"(?:provide|give|share|send|enter|supply|specify|paste|submit|clarify)(?: (?:me|us))?(?: with)?"
)
_ANY: Final = r"(?:(?:an?|the|your|any|some|another|more|input|original|full|complete|specific|actual|valid|clear) )*"
_SENTENCE: Final = rf"{_ANY}(?:sentences?|premises?|hypothes[ie]s)"
_TO_WORK_ON: Final = (
    rf"(?: (?:that |which )?(?:(?:you(?: would|'d)? (?:like|want|need|wish)|i should) (?:(?:me|to|have|be) )*{_WORK}"
    rf"|to (?:be )?{_WORK})|,? so (?:that )?i can\b| for me to\b)"
)

_REFUSALS: Final = tuple(
    re.compile(rf"(?:{pattern})")
    for pattern in (
        # An apology, perhaps for the inconvenience, and no service; not "I can't help it", not "I can't help laughing".
        rf"{_SORRY}\b[^.;:!?]{{0,80}}?{_BUT}(?:as {_MACHINE},? )?{_I_DO_NOT}"
        rf"(?:{_SERVE}(?! (?:it|but|\w+self|(?!with)\w+ing)\b)|do (?:that|this|so|what you)\b"
        rf"|(?:make|give|say|tell|follow)\b[^.]*\b{_ASKED}\b)",
        rf"{_SORRY}\b[^.;:!?]{{0,80}}?{_BUT}{_I}(?:{_CANNOT}|{_WILL_NOT}|{_DECLINE})[.!]*$",
        rf"{_SORRY}\b{_BUT}{_I}(?:(?:do not|don't) feel|(?:am|'m) not) comfortable (?:with|about) (?:{_THIS}|your)\b",
        rf"{_SORRY}\b{_BUT}(?:this|that|it|your request)(?:'s| is) (?:not something|against) ",
        rf"{_SORRY}\b{_BUT}no[.!]*$",
        # None: then only what is said of a request.
        rf"{_I_DO_NOT}(?:assist|comply|fulfil)\w*(?:[.!]|$| (?:you )?(?:with|to|your|this|that|such|in)\b)",
        rf"{_I_DO_NOT}help(?:ing)?(?: you)? with (?:(?:{_THIS}|it|your request)(?:[.!]|$)|(?:writ|creat|generat)ing\b)",
        rf"{_I_DO_NOT}{_SERVE}(?: (?:you|in|to|on|with|for|of|about|any|further))* {_THIS}(?:[.!]|$)",
        rf"{_I_DO_NOT}{_SERVE} (?:[\w-]+,? ){{0,7}}?{_ASKED}\b",
        rf"(?:{_SORRY}\b{_BUT})?{_I}{_DECLINE} (?:{_THIS}|your|the|such an?) (?:request|prompt|task|question)",
        rf"{_I}(?:must|have to|need to) (?:\w+ly )?(?:decline|refuse)[.!]*$",
        rf"(?:as|being|since i am|i'm|i am)(?: just| only| merely)? {_MACHINE},? (?:and |so |but )?(?:i|we)\b"
        r"[^.]{0,60}?(?:\bnot?\b|cannot|n't\b|unable|decline)",
        # The request is at fault.
        rf"(?:{_SORRY}\b{_BUT})?(?:{_THIS}|the|your)(?: [\w-]+)? {_ASKED}(?: [\w-]+){{0,2}} "
        r"(?:violates?|goes against|is (?:against|not something)"
        r"|contains? (?:harmful|inappropriate|offensive|hateful|explicit))",
        r"(?:it|that|this) (?:goes|is|would be) (?:\w+ )?(?:against|inappropriate|not appropriate)\b[^.]*"
        r"\b(?:guidelines|polic(?:y|ies)|programming|principles|for me to)\b",
        r"(?:it|that|this)(?:'s| is) not something (?:that )?i can (?:help|assist|do)\b",
        # It was given nothing to work on, it says.
        rf"{_GIVE} {_SENTENCE}(?: first| here| below)?(?:[.!?,]|$|{_TO_WORK_ON})",
        rf"{_GIVE} {_ANY}(?:texts?|statements?|messages?|inputs?|content|contexts?|information|details){_TO_WORK_ON}",
        rf"(?:what|which) (?:sentence|premise|text|statement) (?:would you like|do you want|should i)\b[^.]*\b{_WORK}",
        r"(?:(?:it )?(?:seems|looks|appears) (?:like |that |as if )?)?"
        r"(?:you (?:have not|haven't|did not|didn't) (?:\w+ )?(?:provide|give|share|include|send|sent)[dn]?"
        rf"|i (?:do not|don't) see) {_SENTENCE}\b",
        rf"(?:there (?:is|was|'s) )?no {_SENTENCE} "
        rf"(?:(?:was |is |has been )?(?:provided|included)|to {_WORK}|in your message)",
    )
)
_FRINGE: Final = " \t\r\n*_#>`~-\"'“”«»"
_FIRST_WORDS: Final = re.compile(
    r"(?:(?:assistant:|(?:sure|certainly|of course|okay|hello|hi|no|oh|hm+|well|thank(?:s| you)[^.,;!]{0,40}"
    r"|i(?:'m| am|'d be| would be|'ll be| will be) (?:ready|happy|glad|here)\b[^.!?]{0,80}"
    r"|i understand[^.;!]{0,60}?)[,.;!-]+) (?:but )?){1,3}"
)
_SPOKEN: Final = re.compile(r"[,.!?][\"'”»] +\w")


def declines(text: str) -> bool:
    """Return whether a reply that is not what was asked for reads as if the model declined.

    Few endpoints set `Reply.refusal`; with most, a model that declines says so. The words also stand in replies that do
    what was asked, so a reply is first to be read as such.

    Example:
        >>> declines("I'm sorry, but I can't help with that."), declines("Hm, hard to say.")
        (True, False)
    """
    return bool(_DECLINES.search(text))


def refuses(text: str) -> bool:
    """Return whether a reply is a refusal, and no sentence that holds the words of one.

    Where any sentence may be what was asked for, `declines` says too much. It is told by how the reply begins, in
    English: an apology and no help; nothing to be done about a request; a machine that does not, or that asks for the
    sentence it was given.

    Example:
        >>> refuses("I'm sorry, but I can't help with that."), refuses("I can't believe it's over.")
        (True, False)
    """
    beginning = text.lstrip()[:_BEGINNING].replace("’", "'")
    # Somebody in a story says it.
    if beginning[:1] in {*"\"'“«"} and _SPOKEN.search(beginning):
        return False
    plain = " ".join(beginning.strip(_FRINGE).lower().split())
    first = _FIRST_WORDS.match(plain)
    return any(pattern.match(plain, first.end() if first else 0) for pattern in _REFUSALS)
