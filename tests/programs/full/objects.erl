%% Terms in many processes, and tables (ets): built, changed, dropped, looked up in another order. Argument: scale.
-module(objects).
-export([main/1]).

main([Text]) ->
    Count = 100000 * list_to_integer(Text),
    Table = ets:new(points, [set]),
    [ets:insert(Table, point(I, I, Count, "point")) || I <- lists:seq(0, Count - 1)],
    io:format("~p~n", [ets:foldl(fun({_, _, _, [_, Twice]}, Sum) -> Sum + Twice end, 0, Table)]),
    Thirds = lists:seq(0, Count - 1, 3),
    [ets:delete(Table, I) || I <- Thirds],
    io:format("~p~n", [ets:info(Table, size)]),
    [ets:insert(Table, point(I, I + 1, Count, "again")) || I <- Thirds],
    io:format("~p~n", [look_up(Table, Count, 12345, 200000, 0)]),
    Me = self(),
    Workers = [spawn_link(fun() -> Me ! {self(), work(Seed, Count div 4)} end) || Seed <- lists:seq(1, 8)],
    io:format("~p~n", [[receive {Worker, Hash} -> Hash end || Worker <- Workers]]),
    Names = lists:sort([Name || {_, _, Name, _} <- ets:tab2list(Table)]),
    io:format("~p ~p~n", [length(Names), erlang:md5(Names)]),
    Map = maps:from_list([{Name, I} || {I, _, Name, _} <- ets:tab2list(Table)]),
    io:format("~p ~p~n", [maps:size(Map), byte_size(term_to_binary(Map))]),
    halt(0).

point(I, N, Count, What) ->
    {I, N, list_to_binary([What, "-", integer_to_list(I * 7919 rem Count)]), [N, 2 * N]}.

look_up(_, _, _, 0, Total) -> Total;
look_up(Table, Count, X, Left, Total) ->
    Next = (X * 1103515245 + 12345) rem 2147483648,
    [{_, N, Name, _}] = ets:lookup(Table, Next rem Count),
    look_up(Table, Count, Next, Left - 1, Total + N + byte_size(Name)).

%% A heap of its own in each process.
work(Seed, Count) ->
    List = [{I, I * Seed, integer_to_list(I)} || I <- lists:seq(1, Count)],
    erlang:garbage_collect(),
    erlang:phash2(lists:sort(fun({_, A, S}, {_, B, T}) -> {A rem 1009, S} =< {B rem 1009, T} end, List)).
