// The text the example streams: prose written for it, plain ASCII. Nothing but the text.

/** A few hundred words. Every request streams a stretch of it, from an offset of its own, wrapping at the end. */
export const TEXT = `The ferry left at six, before the fog had made up its mind. Old Marten counted the passengers twice, because the harbour
office paid by the head and never believed the first number. Eleven people, a crate of hens, and a piano that nobody
would admit to owning. He wrote it all in the blue book, in the small square hand his mother had taught him, and let
go the rope.

Halfway across, the engine coughed and stopped. It did this most mornings, and the regulars did not look up from their
papers. Marten opened the hatch, spoke to the engine for a while in a low voice, and struck it once with the flat of a
spanner. The hens complained. The engine thought about it and went on.

It was then that the piano began to play. Not a tune, only three notes, slow and a little flat, as if someone were
trying a door. The woman from the bakery put down her cup. The two brothers who had not spoken since the spring looked
at each other, and then at the canvas that covered the thing, which did not move. Three notes, and the same three notes
again, and the fog closed behind the boat like water.

"Damp in the strings," said Marten, who knew nothing about it. He wrote that in the book as well, under the hens, with
the time beside it. A record is a record, his mother used to say; you put down what came, in the order that it came,
and you leave the meaning to whoever pays for the ink.

At the far landing the piano was carried up the steps by four men who each believed that another had hired them. They
set it down in front of the school, where the sun had begun to reach the wall. A girl of about nine lifted the lid,
pulled out a grey kitten by the loose skin of its neck, and carried it home without a word. The brothers laughed first.
Then everyone did, even the man from the harbour office, who had come down to count.

Marten opened the book, crossed out eleven, and wrote twelve. Then he turned the boat around, for the fog was lifting,
and there were people waiting on the other side.
`;
