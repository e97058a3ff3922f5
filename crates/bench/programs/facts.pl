% Facts and terms of SWI-Prolog: asserted with keys in no order, asked for, sorted. With one argument, how many.
:- initialization(main, main).
:- dynamic fact/2.

some(State0, N, State, Number) :-
    State is State0 * 16807 mod 2147483647,
    Number is State mod N.

fill(0, _, _) :- !.
fill(I, N, State0) :-
    some(State0, N, State, Number),
    atom_concat(key_, Number, Key),
    assertz(fact(Key, I)),
    Rest is I - 1,
    fill(Rest, N, State).

ask(0, _, _, Sum, Sum) :- !.
ask(I, N, State0, Sum0, Sum) :-
    some(State0, N, State, Number),
    atom_concat(key_, Number, Key),
    ( fact(Key, Value) -> Sum1 is Sum0 + Value ; Sum1 = Sum0 ),
    Rest is I - 1,
    ask(Rest, N, State, Sum1, Sum).

main([Argument]) :-
    atom_number(Argument, N),
    fill(N, N, 12345),
    ask(N, N, 777, 0, Sum),
    findall(Key-Value, fact(Key, Value), Pairs),
    msort(Pairs, [First|_]),
    writeln(Sum-First).
