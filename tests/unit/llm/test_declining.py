"""Replies in which a model declines, and replies that are refusals."""

from __future__ import annotations

import time

import pytest

from lightning_cse.llm import declines, refuses


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "I can’t help with that.",
        "I cannot judge this.",
        "I'd rather not; I apologise.",
        "I won't answer that.",
        "I am UNABLE to say.",
        "As an assistant, I will not take part.",
        "I must decline.",
    ],
)
def test_what_declines(text: str) -> None:
    assert declines(text)


@pytest.mark.parametrize("text", ["", "Hm, hard to say.", "A canter through the Declination.", "No."])
def test_what_does_not(text: str) -> None:
    assert not declines(text)


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "I’m sorry, but I can’t assist with that request.",
        "I am sorry, but I cannot create a sentence that contains hate speech.",
        "Sorry, I can't do that.",
        "Sorry, but no.",
        "I cannot assist with this request.",
        "I can't help with that.",
        "I cannot help you with this.",
        "I can't comply with that.",
        "I cannot fulfill your request.",
        "I can't create content that demeans a group of people.",
        "I cannot generate a hypothesis for this premise.",
        "I can not provide medical advice.",
        "I'm unable to provide an answer to this prompt.",
        "I am not able to rewrite this sentence.",
        "I'm not able to assist with content of that kind.",
        "I won't write a sentence like that one.",
        "I will not generate hateful content.",
        "As an AI, I cannot take sides on this.",
        "As an AI language model, I don't have opinions.",
        "As a large language model, I am unable to see pictures.",
        "I'm just an AI and I can't judge people.",
        "Unfortunately, I can't fulfill this request.",
        "Unfortunately, I am unable to help with violent descriptions.",
        "I apologize, but I cannot produce such a text.",
        "I apologise for the inconvenience, but I'm not able to answer that.",
        "I apologize for any inconvenience. I cannot continue with this.",
        "My apologies, but I can't rephrase this.",
        "**I'm sorry, but I can't help with that.**",
        "\"I'm sorry, but I can't assist with that.\"",
        "> I cannot create such a sentence.",
        "No, I can't help with that.",
        "I must decline this request.",
        "I must respectfully decline to answer this question.",
        "I respectfully decline to write that sentence.",
        "I'd rather not answer that question.",
        "I don't feel comfortable generating a sentence about this.",
        "I am not comfortable writing this sentence.",
        "I'm afraid I can't help with that.",
        "I'm sorry, I'm afraid I can't do that.",
        "I'm sorry, but that's not something I can help with.",
        "This request violates my guidelines.",
        "Your prompt goes against the content policy.",
        "It is against my guidelines to describe that.",
        "It would be inappropriate for me to write this.",
        "I'm sorry, I can't.",
        "Thank you for your message, but I cannot answer this question.",
        "I understand what you are after, but I can't write that sentence.",
        "I really can't provide that.",
        "I'm very sorry, but as an AI I can't participate in this.",
        "I can't assist.",
        "Regrettably, I cannot engage with this topic.",
        "I'm sorry, but I can't help with that. If you like, I can write about something else instead.",
        "I cannot in good conscience write this.",
        "I do not engage in hateful speech.",
        "I cannot provide assistance with illegal activities.",
        "I cannot help with writing insults.",
        "I'm sorry, but I cannot do what you ask.",
        "I must refuse.",
        "Assistant: I can't help with that.",
        "I cannot write something that promotes violence.",
        "I'm sorry, but I don't feel comfortable with that.",
        "I'm sorry, but I have to refuse this request.",
        "I'm sorry, but your request contains harmful content.",
        "I'm sorry, but I won't be able to help with this.",
        "Could you please provide the sentence you'd like me to rewrite?",
        "Please provide a sentence.",
        "Please provide the premise.",
        "Can you share the original sentence, please?",
        "Please provide more context so I can help.",
        "Please share the text you want me to paraphrase.",
        "Sure! I'd be happy to help. Please provide the sentence you want me to rewrite.",
        "It looks like you haven't provided a sentence. Could you share it?",
        "What sentence would you like me to rewrite?",
        "I don't see a sentence in your message.",
        "No sentence was provided.",
        "There is no premise to contradict.",
    ],
)
def test_what_is_a_refusal(text: str) -> None:
    assert refuses(text)
    assert refuses(f" \n*{text.upper()}*\n")


@pytest.mark.parametrize(
    "text",
    [
        "I can't believe it's over.",
        "Sorry seems to be the hardest word.",
        "He is unable to walk.",
        "I cannot swim.",
        "I can't help falling in love.",
        "I can't help it.",
        "I'm sorry for your loss.",
        "I'm sorry.",
        "I am sorry, but I can't come tonight.",
        "I'm sorry I was late.",
        "I'm sorry to hear that you are ill.",
        "Sorry, we are closed.",
        "Sorry, I can't hear you.",
        "Unfortunately, I can't come to the party.",
        "Unfortunately, it rained all day.",
        "Unfortunately, I can't help laughing.",
        "I apologize for being late.",
        "I apologized, but she did not listen.",
        "The model cannot help with that, said the engineer.",
        "She said she could not assist with the request.",
        '"I can\'t help with that," she told the guest.',
        "“I'm sorry, but I can't help with that,” said the clerk.",
        "'I cannot answer this question,' he replied.",
        "As an AI engineer, I cannot imagine another job.",
        "As an aid worker, I cannot take sides.",
        "As a child, I was not able to swim.",
        "I won't go there again.",
        "I will not forget this day.",
        "I don't like rainy days.",
        "I do not eat meat.",
        "I'm not able to lift the box.",
        "I can't do this anymore.",
        "I can't wait to see the film.",
        "I cannot provide for my family.",
        "I must decline the invitation.",
        "I'd rather not go out tonight.",
        "I am not comfortable in this chair.",
        "It is against the law to park here.",
        "The request was refused.",
        "This sentence is short.",
        "This question is hard.",
        "No, the shop is not open.",
        "No, I can't see the sea from here.",
        "The airline apologized and refused to help.",
        "We are not able to see the stars.",
        "We can't answer the phone on Sundays.",
        "AI cannot replace teachers.",
        "Well, I can't complain.",
        "A man says that he is sorry.",
        "I'm an artist and I do not sell my work.",
        "I helped with that.",
        "I am unable to sleep.",
        "I'm afraid of spiders.",
        "That is not something people say.",
        "",
        "  \n",
        '"',
        "Sorry",
        "I can't",
        "I'm unable to help.",
        "Sorry, I did not hear the question.",
        "Please provide a receipt.",
        "Please provide your statement to the police.",
        "Could you please send me a message?",
        "Could you provide information about the dog?",
        "Please share the text with your friends.",
        "No sentence was given to the thief.",
        "There is no sentence without a verb.",
        "What sentence did he get?",
        "I am happy, but I don't see a dog.",
        "I am afraid that the answer is no.",
    ],
)
def test_what_is_a_sentence_that_holds_such_words(text: str) -> None:
    assert not refuses(text)


@pytest.mark.parametrize(
    "text",
    [
        "sorry " * 10_000,
        "I " + "just " * 10_000,
        "as an " + "ai " * 10_000,
        "we cannot write " + "a-b, " * 10_000,
        " " * 100_000,
    ],
)
def test_a_long_reply_takes_no_time(text: str) -> None:
    begun = time.perf_counter()
    assert not refuses(text)
    assert time.perf_counter() - begun < 0.5
